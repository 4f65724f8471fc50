"""Regularizers and constraints of x that have no gradient, for `Problem(prox=...)`."""

from .problem.proximal_operators import L1 as L1
from .problem.proximal_operators import L2 as L2
from .problem.proximal_operators import Ball as Ball
from .problem.proximal_operators import Box as Box
from .problem.proximal_operators import Simplex as Simplex
from .problem.proximal_operators import ball as ball
from .problem.proximal_operators import box as box
from .problem.proximal_operators import l1 as l1
from .problem.proximal_operators import l2 as l2
from .problem.proximal_operators import simplex as simplex
