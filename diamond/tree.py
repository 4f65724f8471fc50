"""Arithmetic on pytrees, leaf by leaf."""

from .core.pytrees import Number as Number
from .core.pytrees import Tree as Tree
from .core.pytrees import add as add
from .core.pytrees import axpy as axpy
from .core.pytrees import dot as dot
from .core.pytrees import finite as finite
from .core.pytrees import norm as norm
from .core.pytrees import normal as normal
from .core.pytrees import pytree as pytree
from .core.pytrees import scale as scale
from .core.pytrees import select as select
from .core.pytrees import sub as sub
from .core.pytrees import zeros as zeros
