"""The command line: parse, call, print. JAX is imported inside the commands, not before."""

from . import (
    advise,
    bench,
    demo,
    experiments,
    inspect,
    net,
    net_renew,
    net_status,
    reproduce,
    results,
    tune,
)
from .app import app

__all__ = [
    "advise",
    "app",
    "bench",
    "demo",
    "experiments",
    "inspect",
    "net",
    "net_renew",
    "net_status",
    "reproduce",
    "results",
    "tune",
]
