"""The page and its events, over HTTP and to this machine only."""

from __future__ import annotations

import socketserver
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import BoundedSemaphore
from typing import Any

from onesigma.errors import InputError
from onesigma.pages.live.player import Player

_ADDRESS = "127.0.0.1"
_MOST_VIEWERS = 16
_HEARTBEAT = 2.0  # seconds; how long a viewer that is gone may go unnoticed
# path → package, file, kind. Nothing else is served, so no path can lead elsewhere.
_SCRIPTS = ("live.js", "draw.js", "strips.js", "doubt.js", "scale.js", "rule.js")
_FILES = {
    "/": ("onesigma.pages.live", "live.html", "text/html"),
    "/page.css": ("onesigma.pages.html", "page.css", "text/css"),
    "/live.css": ("onesigma.pages.live", "live.css", "text/css"),
    **{f"/{name}": ("onesigma.pages.live", name, "text/javascript") for name in _SCRIPTS},
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


class LiveServer(ThreadingHTTPServer):
    """Serves what one player says. Port 0 is any free one."""

    daemon_threads = True  # Ctrl-C does not wait for viewers

    def __init__(self, player: Player, port: int = 0) -> None:
        self.player = player
        self.seats = BoundedSemaphore(_MOST_VIEWERS)
        try:
            super().__init__((_ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"Port {port} cannot be used ({error}). Without --port, a free one is found."
            ) from error

    def server_bind(self) -> None:
        """Without HTTPServer's look-up of the host's name, which may ask the network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    @property
    def url(self) -> str:
        return f"http://{_ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """The names a browser may have for us; any other was re-bound to our address."""
        return {f"{name}:{self.server_port}" for name in (_ADDRESS, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A viewer that goes away is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = 20  # seconds without reading or writing: a viewer that hangs gives its seat back

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "Only for this machine")
        elif self.path == "/events":
            self._events()
        elif self.path in _FILES:
            package, name, kind = _FILES[self.path]
            content = files(package).joinpath(name).read_bytes()
            self._begin(f"{kind}; charset=utf-8", len(content))
            self.wfile.write(content)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _events(self) -> None:
        if not self.server.seats.acquire(blocking=False):
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "Too many viewers")
            return
        try:
            player, place = self.server.player, 0
            self._begin("text/event-stream; charset=utf-8")
            self.wfile.write(b"retry: 2000\n" + player.hello())
            player.watched.set()
            while True:
                place, events = player.ring.after(place, _HEARTBEAT)
                self.wfile.write(b"".join(events) or player.tick())
        finally:
            self.server.seats.release()

    def _begin(self, kind: str, length: int | None = None) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Quiet: the page says what there is to say."""
