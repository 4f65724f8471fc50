"""Arithmetic on pytrees, leaf by leaf."""

from .core.tree import Number as Number
from .core.tree import Tree as Tree
from .core.tree import add as add
from .core.tree import axpy as axpy
from .core.tree import dot as dot
from .core.tree import finite as finite
from .core.tree import norm as norm
from .core.tree import normal as normal
from .core.tree import pytree as pytree
from .core.tree import scale as scale
from .core.tree import select as select
from .core.tree import sub as sub
from .core.tree import zeros as zeros
