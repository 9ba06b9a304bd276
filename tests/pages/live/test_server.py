"""The page and its events over real sockets, without a browser."""

import http.client
import socket
from contextlib import contextmanager
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
    with socket.create_connection(idle.server_address) as connection:
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


def test_too_many_viewers():
    with serving(feed([1.0] * 8), viewers=1) as server, answered(server, "/events") as response:
        response.readline()
        assert status(server, "/events") == 503
        assert status(server, "/") == 200


def test_a_viewer_that_left_gives_its_seat_back():
    with serving(feed([1.0] * 8), viewers=1, heartbeat=0.01) as server:
        with answered(server, "/events") as response:
            response.readline()
        assert server.seats.acquire(timeout=30)


def test_a_viewer_that_does_not_read_hurts_nobody():
    settings = {"viewers": 2, "heartbeat": 0.01, "patience": 0.3}
    with serving(feed([1.0] * 4000), **settings) as server, socket.socket() as lazy:
        for end, buffer in ((server.socket, socket.SO_SNDBUF), (lazy, socket.SO_RCVBUF)):
            end.setsockopt(socket.SOL_SOCKET, buffer, 4096)  # full after a few events
        lazy.connect(server.server_address)
        lazy.sendall(f"GET /events HTTP/1.0\r\nHost: {server.url[7:-1]}\r\n\r\n".encode())
        assert server.player.watched.wait(30)
        server.player.run()  # ends although it does not read
        assert server.player.ring.after(0, timeout=0)[1][-1].startswith(b"event: end")
        for _ in range(2):  # and its seat is free again
            assert server.seats.acquire(timeout=30)


def test_a_port_that_is_taken_is_explained(idle):
    with pytest.raises(InputError, match="cannot be used"):
        LiveServer(idle.player, idle.server_port)
