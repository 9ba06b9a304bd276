"""The page and its events over real sockets, without a browser."""

import http.client
import math
import socket
import time
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest
from pages.live.stand_in import feed, serving

from onesigma.errors import InputError
from onesigma.pages.live.server import SCRIPTS, LiveServer


@contextmanager
def answered(server, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(method, path, headers=headers)
    with connection.getresponse() as response:
        yield response
    connection.close()


def status(server, path="/", method="GET", **headers):
    with answered(server, path, method, **headers) as response:
        return response.status


def to_the_end(server):
    """The names of all events until the end of the stream."""
    names = []
    with answered(server, "/events") as response:
        assert response.readline() == b"retry: 2000\n"
        while "end" not in names:
            line = response.readline().decode()
            assert line, f"closed after {names}"
            if line.startswith("event: "):
                names.append(line.split()[1])
    return names


@pytest.fixture(scope="module")
def idle():
    """A server whose player never starts."""
    with serving(feed([1.0] * 8)) as server:
        yield server


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/live.css", "text/css"),
        ("/page.css", "text/css"),
        *((f"/{name}", "text/javascript") for name in SCRIPTS),
    ],
)
def test_the_page_and_its_parts(idle, path, kind):
    with answered(idle, path) as response:
        content = response.read()
        assert response.status == 200
        assert response.headers["Content-Type"] == f"{kind}; charset=utf-8"
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert response.headers["Cache-Control"] == "no-store"
        assert len(content) == int(response.headers["Content-Length"]) > 300
        assert b"http://" not in content.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in content
        assert b"doubt" not in content.lower()


@pytest.mark.parametrize("path", ["/etc/passwd", "/../live/feed.py", "/feed.py", "/?x", "/%2e%2e/"])
def test_nothing_else_is_served(idle, path):
    assert status(idle, path) == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent(idle, method):
    assert status(idle, "/events", method) == 501


def test_only_this_machine_is_listened_to(idle):
    assert idle.server_address[0] == "127.0.0.1"
    assert idle.url == f"http://127.0.0.1:{idle.server_port}/"


def test_a_name_that_was_rebound_to_us_is_refused(idle):
    port = idle.server_port
    for path in ("/", "/events", "/live.js"):
        for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", ""):
            assert status(idle, path, Host=host) == 421
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        assert status(idle, "/", Host=host) == 200


def test_a_request_without_a_host_is_refused(idle):
    with connected(idle) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b" 421 " in connection.recv(1000)


def test_several_viewers_see_the_same():
    with serving(feed([1.0] * 8)) as server:
        Thread(target=server.player.run, daemon=True).start()
        first, second = to_the_end(server), to_the_end(server)
        # The first may have come before the first instant; from then on all is the same.
        assert first[-4:] == second[-4:]
        assert first[0] == second[0] == "hello"
        assert second.count("frame") >= 2


def test_a_recording_waits_for_a_viewer():
    with serving(feed([1.0] * 8, recorded=True)) as server:
        Thread(target=server.player.run, daemon=True).start()
        assert status(server, "/") == 200  # the page alone is no viewer
        assert server.player.ring.after(0, timeout=0.05) == (0, [])
        assert to_the_end(server)[-1] == "end"


def until(holds, seconds=30):
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def connected(server):
    return socket.create_connection(server.server_address, timeout=30)


def lazy(server):
    """A viewer that asks for the events and does not read them."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(server.server_address)
    connection.sendall(f"GET /events HTTP/1.0\r\nHost: {server.url[7:-1]}\r\n\r\n".encode())
    return connection


def slow(server):
    return [each for each in server.viewers if each.writing_since < math.inf]


def test_the_newest_viewers_have_the_seats():
    with serving(feed([1.0] * 8), viewers=2, heartbeat=0.01) as server, ExitStack() as opened:
        first, *others = [opened.enter_context(answered(server, "/events")) for _ in range(3)]
        assert b"event: displaced\n" in first.read()  # and then it is closed
        for other in others:
            assert other.readline() == b"retry: 2000\n"
        assert len(server.viewers) == 2


def test_a_slow_viewer_loses_its_seat_first():
    with serving(feed([1.0] * 8), viewers=2, patience=60) as server, ExitStack() as opened:
        reader = opened.enter_context(answered(server, "/events"))
        opened.enter_context(lazy(server))
        until(lambda: len(server.viewers) == 2)
        kept, _ = server.viewers
        server.player.ring.append(b": much\n" * 200_000)
        for _ in range(200_000):
            reader.readline()
        until(lambda: slow(server) == server.viewers[1:])
        assert opened.enter_context(answered(server, "/events")).readline() == b"retry: 2000\n"
        assert kept in server.viewers  # although it is the oldest
        assert len(server.viewers) == 2


@pytest.mark.parametrize("much", [False, True], ids=["idle", "stuck"])
def test_viewers_that_do_not_read_keep_nobody_out(much):
    with serving(feed([1.0] * 8)) as server, ExitStack() as opened:
        if much:
            server.player.ring.append(b": much\n" * 200_000)
        for _ in range(16):
            opened.enter_context(lazy(server))
        until(lambda: len(slow(server) if much else server.viewers) == 16)
        assert opened.enter_context(answered(server, "/events")).readline() == b"retry: 2000\n"


def test_a_viewer_that_left_gives_its_seat_back():
    with serving(feed([1.0] * 8), heartbeat=0.01) as server:
        with answered(server, "/events") as response:
            response.readline()
        until(lambda: not server.viewers)


def test_a_viewer_that_does_not_read_is_dropped():
    with serving(feed([1.0] * 4000), heartbeat=0.01, patience=0.3) as server, lazy(server):
        assert server.player.watched.wait(30)
        server.player.ring.append(b": much\n" * 200_000)
        server.player.run()  # ends although it does not read
        assert server.player.ring.after(0, timeout=0)[1][-1].startswith(b"event: end")
        until(lambda: not server.viewers)


def test_a_silent_connection_is_cut_off():
    with serving(feed([1.0] * 8), patience=0.3) as server, connected(server) as connection:
        assert connection.recv(1) == b""


def test_a_request_that_drips_in_is_cut_off():
    with serving(feed([1.0] * 8), patience=0.3) as server, connected(server) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\nX-Long: ")
        until(lambda: not sent(connection, b"x"))  # so often that no pause is noticed


def sent(connection, content):
    try:
        connection.sendall(content)
    except ConnectionError:
        return False
    return True


def test_connections_are_counted_and_none_is_held_for_ever():
    settings = {"connections": 2, "patience": 0.5}
    with serving(feed([1.0] * 8), **settings) as server, ExitStack() as opened:
        for _ in range(6):  # three times as many as are served, and all of them silent
            opened.enter_context(connected(server))
        assert status(server) == 200
        assert opened.enter_context(answered(server, "/events")).readline() == b"retry: 2000\n"


def test_a_connection_beyond_the_last_waits():
    with serving(feed([1.0] * 8), connections=1, patience=60) as server:
        silent = connected(server)
        waiting = Thread(target=status, args=(server,))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        silent.close()
        waiting.join(30)
        assert not waiting.is_alive()


def test_other_pages_get_no_events(idle):
    site = {"Sec-Fetch-Site": "cross-site"}
    assert status(idle, "/events", **site) == 403
    assert status(idle, "/", **site) == 200  # a link to us may be followed


def test_a_port_that_is_taken_is_explained(idle):
    with pytest.raises(InputError, match="cannot be used"):
        LiveServer(idle.player, idle.server_port)
