"""From run folders to a page: `build` writes one offline HTML file, `serve` shows it live.

Only files are read, never the objects of a run, so JAX is not needed.
"""

from .live import serve
from .page import build

__all__ = ["build", "serve"]
