"""Decentralized bilevel optimization: agents on a network, private data, no server.

min_x 1/m sum_i f_i(x, y_i*(x))  subject to  y_i*(x) = argmin_y g_i(x, y)
"""

from . import data, hypergradient, network, problems, schedule
from ._version import __version__ as __version__
from .algorithms.diamond import diamond
from .algorithms.dsgd import dsgd
from .algorithms.gt_sgd import gt_sgd
from .algorithms.interact import interact
from .algorithms.m_sgd import m_sgd
from .algorithms.svr_interact import svr_interact
from .divergence import Diverged
from .network import Network
from .problem import Problem
from .run import Run
from .runtimes.simulate import simulate

__all__ = [
    "Diverged",
    "Network",
    "Problem",
    "Run",
    "data",
    "diamond",
    "dsgd",
    "gt_sgd",
    "hypergradient",
    "interact",
    "m_sgd",
    "network",
    "problems",
    "schedule",
    "simulate",
    "svr_interact",
]
