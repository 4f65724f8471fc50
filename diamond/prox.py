"""Regularizers and constraints of x that have no gradient, for `Problem(prox=...)`."""

from .problem.prox import L1 as L1
from .problem.prox import L2 as L2
from .problem.prox import Ball as Ball
from .problem.prox import Box as Box
from .problem.prox import Simplex as Simplex
from .problem.prox import ball as ball
from .problem.prox import box as box
from .problem.prox import l1 as l1
from .problem.prox import l2 as l2
from .problem.prox import simplex as simplex
