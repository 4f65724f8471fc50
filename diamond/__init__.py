"""Decentralized bilevel optimization: agents on a network, private data, no server.

min_x 1/m sum_i f_i(x, y_i*(x))  subject to  y_i*(x) = argmin_y g_i(x, y)
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import algorithms, callbacks, data, hypergradient, network, problems, report
    from . import schedule as schedule
    from . import theory as theory
    from .algorithms.diamond import diamond
    from .algorithms.dsgd import dsgd
    from .algorithms.gt_sgd import gt_sgd
    from .algorithms.interact import interact
    from .algorithms.k_free import k_free
    from .algorithms.m_sgd import m_sgd
    from .algorithms.svr_interact import svr_interact
    from .comparison import Comparison, compare
    from .divergence import Diverged
    from .loading import load
    from .network import Network
    from .problem import Problem
    from .run import Run
    from .runtimes.simulate import simulate

__all__ = [
    "Comparison",
    "Diverged",
    "Network",
    "Problem",
    "Run",
    "algorithms",
    "callbacks",
    "compare",
    "data",
    "diamond",
    "dsgd",
    "gt_sgd",
    "hypergradient",
    "interact",
    "k_free",
    "load",
    "m_sgd",
    "network",
    "problems",
    "report",
    "schedule",
    "simulate",
    "svr_interact",
    "theory",
]

# Where the names come from, when first asked for: `diamond --help` need not wait for JAX. Those
# not listed are modules.
_HOMES = {
    "Comparison": "comparison",
    "Diverged": "divergence",
    "Network": "network",
    "Problem": "problem",
    "Run": "run",
    "compare": "comparison",
    "load": "loading",
    "simulate": "runtimes.simulate",
}
_ALGORITHMS = {path.stem for path in Path(__file__).parent.glob("algorithms/[!_]*.py")}
_HOMES |= {name: f"algorithms.{name}" for name in _ALGORITHMS}  # a file there is a name here


def __getattr__(name: str) -> Any:
    if name not in (*__all__, *_HOMES):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_HOMES.get(name, name)}", __name__)
    found = getattr(module, name) if name in _HOMES else module
    globals()[name] = found  # asked once
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES})
