"""Live report page on loopback that refreshes while runs continue."""

import hashlib
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path

from ..records.folder_reader import open_runs
from .loopback_server import HOST, LoopbackHandler, serve_until_interrupted
from .report_page import render_report
from .report_payload import collect_report_data, dump_compact


def serve(
    folder: Path,
    port: int = 0,
    open_browser: bool = False,
    on_ready: Callable[[str], None] = lambda address: print(
        f"{address}  (Ctrl-C ends)", flush=True
    ),
) -> None:
    """Serve the report of `folder` on loopback until Ctrl-C.

    Args:
        folder: Folder of a run or of a comparison.
        port: Port at 127.0.0.1; 0 takes any free port.
        open_browser: Open the page in the browser.
        on_ready: Called with the address once the server answers.
    """
    serve_until_interrupted(make_server(folder, port), open_browser, on_ready)


def make_server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Create the server of `serve` without starting it; it binds to loopback only."""
    open_runs([folder])  # refuse a folder without runs now, not in the browser
    return ThreadingHTTPServer((HOST, port), partial(_Handler, Path(folder)))


def folder_stamp(folder: Path) -> str:
    """Return a text that changes whenever a run in `folder` writes."""
    depths, names = ("", "*/", "*/*/"), ("manifest.json", "metrics.jsonl")
    files = [file for depth in depths for name in names for file in folder.glob(depth + name)]
    stats = sorted((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return hashlib.sha256(repr(stats).encode()).hexdigest()


class _Handler(LoopbackHandler):
    """Request handler: `/` is the page, `/data.json` its numbers; nothing else is served."""

    def __init__(self, folder: Path, *args: object):
        self.folder = folder
        super().__init__(*args)  # type: ignore[arg-type]

    def answer(self) -> None:
        """Answer the request, or say that nothing has changed."""
        etag = f'"{folder_stamp(self.folder)}"'
        if self.path == "/":
            page = render_report(collect_report_data([self.folder]), live=True)
            self.send_text(page, "text/html; charset=utf-8", etag)
        elif self.path != "/data.json":
            self.send_error(HTTPStatus.NOT_FOUND)
        elif self.headers.get("If-None-Match") == etag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.end_headers()
        else:
            data = dump_compact(collect_report_data([self.folder]))
            self.send_text(data, "application/json", etag)
