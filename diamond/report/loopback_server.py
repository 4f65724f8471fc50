"""Servers of live pages on loopback, which answer no other host."""

import re
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "127.0.0.1"
LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)


def is_loopback(host: str) -> bool:
    """Return whether the Host header of a request names this machine, with any port.

    Pages of other hosts whose names lead here (DNS rebinding) must not read what is served.
    """
    return LOOPBACK.fullmatch(host) is not None


class LoopbackHandler(BaseHTTPRequestHandler):
    """Base of the handlers of live pages: subclasses define `answer`."""

    def answer(self) -> None:
        """Answer the request for `self.path`."""
        raise NotImplementedError

    def do_GET(self) -> None:
        if not is_loopback(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.FORBIDDEN, f"only http://{HOST}/ is answered")
            return
        try:
            self.answer()
        except ConnectionError:
            pass  # the browser disconnected
        except (OSError, ValueError) as error:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, explain=str(error))

    def send_text(self, text: str, content_type: str, etag: str = "") -> None:
        """Send a text, which is not to be stored."""
        body = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal belongs to the user."""


def serve_until_interrupted(
    server: ThreadingHTTPServer, open_browser: bool, on_ready: Callable[[str], None]
) -> None:
    """Serve until Ctrl-C; `on_ready` is called with the address."""
    with server:
        address = f"http://{HOST}:{server.server_port}/"
        on_ready(address)
        if open_browser:
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
