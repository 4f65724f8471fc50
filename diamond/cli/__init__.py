"""The command line: parse, call, print. JAX is imported inside the commands, not before."""

from . import advise, compute, demo, inspect, keys, net, paper, results, tune, watch
from .app import app

__all__ = [
    "advise",
    "app",
    "compute",
    "demo",
    "inspect",
    "keys",
    "net",
    "paper",
    "results",
    "tune",
    "watch",
]
