"""The page and its events, over HTTP and to this machine only."""

import math
import socket
import socketserver
import sys
import time
import webbrowser
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import BoundedSemaphore, Lock, Thread, Timer
from typing import Any

from onesigma.errors import InputError
from onesigma.pages.live.feed import Feed
from onesigma.pages.live.model import LiveModel
from onesigma.pages.live.player import Player

_ADDRESS = "127.0.0.1"
_BUFFER = 1 << 16  # bytes that the system keeps for one viewer
_AT_ONCE = 100  # events per write, some 50 kB
_DISPLACED = b"event: displaced\ndata: {}\n\n"
SCRIPTS = ("live.js", "draw.js", "lanes.js", "uncertainty.js", "rule.js")
# path → package, file, kind. Nothing else is served, so no path can lead elsewhere.
_FILES = {
    "/": ("onesigma.pages.live", "live.html", "text/html"),
    "/page.css": ("onesigma.pages.html", "page.css", "text/css"),
    "/live.css": ("onesigma.pages.live", "live.css", "text/css"),
    **{f"/{name}": ("onesigma.pages.live", name, "text/javascript") for name in SCRIPTS},
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def serve(
    model: LiveModel,
    feed: Feed,
    *,
    rate: float | None = None,
    hop: int | None = None,
    speed: float = 1,
    port: int = 0,
    open_page: bool = False,
) -> None:
    """Play the feed through the model and serve the page until Ctrl-C, which is no error.

    ``rate`` is instants per second (default: what the feed says, or 50), ``hop`` the instants from
    window to window (default: a tenth of a window), ``speed`` that of a recording, which may be
    infinite. Port 0 is any free one.
    """
    rate = (feed.rate or 50) if rate is None else rate
    hop = max(1, model.length // 10) if hop is None else hop
    for name, value in (("rate", rate), ("hop", hop), ("speed", speed)):
        if not value > 0 or (value == math.inf and name != "speed"):
            raise InputError(f"--{name} {value}: a positive number is needed.")
    player = Player(model, feed, rate=rate, hop=hop, speed=speed)
    with LiveServer(player, port) as server:
        print(f"{feed.title} through {model.name}: {server.url}  (Ctrl-C stops)", flush=True)
        Thread(target=player.run, daemon=True).start()
        if open_page:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Stopped.", flush=True)


class LiveServer(ThreadingHTTPServer):
    """Serves what one player says. Nobody can keep the others out, by being slow or by being many.

    A viewer hears something every ``heartbeat`` seconds. Whoever is not a viewer is cut off after
    ``patience`` seconds, and so is a viewer who takes longer to read what was sent. If all seats
    of ``viewers`` are taken, the newest viewer gets that of the slowest. A connection beyond the
    first ``connections`` waits until another one ends.
    """

    daemon_threads = True  # Ctrl-C does not wait for viewers
    request_queue_size = 64  # connections that wait

    def __init__(
        self,
        player: Player,
        port: int = 0,
        *,
        viewers: int = 16,
        connections: int = 64,
        heartbeat: float = 2.0,
        patience: float = 5.0,
    ) -> None:
        self.player, self.heartbeat, self.patience = player, heartbeat, patience
        self.viewers: list[_Handler] = []  # in the order in which they came
        self._seats, self._seating = viewers, Lock()
        self._connections = BoundedSemaphore(connections)
        try:
            super().__init__((_ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"Port {port} cannot be used ({error}). Without --port, a free one is found."
            ) from error

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(timeout=2 * self.patience):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def seat(self, viewer: "_Handler") -> None:
        with self._seating:
            if len(self.viewers) >= self._seats:  # the longest in a write; if none is, the oldest
                self.viewers.remove(min(self.viewers, key=lambda each: each.writing_since))
            self.viewers.append(viewer)

    def unseat(self, viewer: "_Handler") -> None:
        with self._seating, suppress(ValueError):  # it was displaced
            self.viewers.remove(viewer)

    def server_bind(self) -> None:
        """Without HTTPServer's look-up of the host's name, which may ask the network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    @property
    def url(self) -> str:
        return f"http://{_ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """The names a browser may have for us; any other name was re-bound to our address."""
        return {f"{name}:{self.server_port}" for name in (_ADDRESS, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A viewer that goes away is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    writing_since = math.inf

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.patience)  # of each write as a whole
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        # And of all that comes before a seat, so that sending byte by byte gains nothing.
        self._end = Timer(self.server.patience, self._cut_off)
        self._end.daemon = True
        self._end.start()

    def finish(self) -> None:
        self._end.cancel()
        super().finish()

    def _cut_off(self) -> None:
        with suppress(OSError):  # it has left
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "Only for this machine")
        elif self.path == "/events" and self.headers.get("Sec-Fetch-Site") == "cross-site":
            self.send_error(HTTPStatus.FORBIDDEN, "Only for our own page")
        elif self.path == "/events":
            self._send_events()
        elif self.path in _FILES:
            package, name, kind = _FILES[self.path]
            content = files(package).joinpath(name).read_bytes()
            self._begin(kind, len(content))
            self.wfile.write(content)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send_events(self) -> None:
        server, player, place = self.server, self.server.player, 0
        self._end.cancel()
        server.seat(self)
        try:
            self._begin("text/event-stream")
            self._write(b"retry: 2000\n" + player.hello())
            player.watched.set()
            while self in server.viewers:  # writing is how a viewer that left is noticed
                place, events = player.ring.after(place, server.heartbeat, _AT_ONCE)
                self._write(b"".join(events) or player.tick())
            self._write(_DISPLACED)
        finally:
            server.unseat(self)

    def _write(self, content: bytes) -> None:
        self.writing_since = time.monotonic()
        self.wfile.write(content)
        self.writing_since = math.inf

    def _begin(self, kind: str, length: int | None = None) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Quiet: the page says what there is to say."""
