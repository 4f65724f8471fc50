"""Command line of the package: parse arguments, call the library, print the results.

To keep start-up short, commands import JAX in their bodies, never at module level.
"""

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
