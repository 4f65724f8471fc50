"""Estimators with the interface of scikit-learn, whose sites learn together by `diamond.solve`.

The classes of `__init__.pyi` are imported on first access: they need scikit-learn.
"""

from ..core.lazy_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
