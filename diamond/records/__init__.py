"""Records of runs: an object, a folder and a picture.

A folder holds `config.toml`, `manifest.json`, `metrics.jsonl` and `checkpoint/`.
The names of `__init__.pyi` are imported on first access: reading a folder needs no JAX.
"""

from ..core.lazy_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
