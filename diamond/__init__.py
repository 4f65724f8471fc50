"""Decentralized bilevel optimization: agents on a network, private data, no server.

min_x 1/m sum_i f_i(x, y_i*(x))  subject to  y_i*(x) = argmin_y g_i(x, y)

The public names are listed in `__init__.pyi` and imported on first access, so that commands such
as `diamond --help` do not load JAX.
"""

from ._version import __version__ as __version__
from .core.lazy_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__, ("algorithm", "schedule"))
