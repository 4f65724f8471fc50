"""Reports of run folders: `build` writes one offline HTML file, `serve` shows it live.

Reports read files only, never the objects of a run, so JAX is not needed.
"""

from .live_server import serve
from .report_page import build

__all__ = ["build", "serve"]
