"""Decentralized bilevel optimization: agents on a network, private data, no server.

min_x 1/m sum_i f_i(x, y_i*(x))  subject to  y_i*(x) = argmin_y g_i(x, y)
"""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__
from .core.garbage import uncollected

if TYPE_CHECKING:
    from . import algorithms, data, hypergradient, network, problems, report
    from . import theory as theory
    from .algorithms.adasdbo import adasdbo
    from .algorithms.aid import aid
    from .algorithms.amigo import amigo
    from .algorithms.bsa import bsa
    from .algorithms.d_soba import d_soba
    from .algorithms.diamond import diamond
    from .algorithms.diamond_common import diamond_common
    from .algorithms.dsbo import dsbo
    from .algorithms.dsgd import dsgd
    from .algorithms.dsgda_gt import dsgda_gt
    from .algorithms.exact_diffusion import exact_diffusion
    from .algorithms.extra import extra
    from .algorithms.f2sa import f2sa
    from .algorithms.fab import fab
    from .algorithms.gossip_dsbo import gossip_dsbo
    from .algorithms.gt_saga import gt_saga
    from .algorithms.gt_sarah import gt_sarah
    from .algorithms.gt_sgd import gt_sgd
    from .algorithms.gt_storm import gt_storm
    from .algorithms.interact import interact
    from .algorithms.itd import itd
    from .algorithms.k_free import k_free
    from .algorithms.lopa import lopa
    from .algorithms.m_sgd import m_sgd
    from .algorithms.ma_dsbo import ma_dsbo
    from .algorithms.ma_soba import ma_soba
    from .algorithms.mdbo import mdbo
    from .algorithms.method import method
    from .algorithms.momentum_tracking import momentum_tracking
    from .algorithms.mrbo import mrbo
    from .algorithms.prometheus import prometheus
    from .algorithms.push_diging import push_diging
    from .algorithms.rsvrb import rsvrb
    from .algorithms.saba import saba
    from .algorithms.sgp import sgp
    from .algorithms.sldbo import sldbo
    from .algorithms.soba import soba
    from .algorithms.sparkle import sparkle
    from .algorithms.stable import stable
    from .algorithms.stocbio import stocbio
    from .algorithms.sustain import sustain
    from .algorithms.svr_interact import svr_interact
    from .algorithms.ttsa import ttsa
    from .algorithms.vrbo import vrbo
    from .algorithms.vrdbo import vrdbo
    from .experiment import callbacks
    from .experiment.comparison import Comparison, compare
    from .experiment.loading import load
    from .measure.divergence import Diverged
    from .network import Network
    from .numbers import schedule as schedule
    from .problem import Problem, prox, stream
    from .runs.run import Run
    from .runtimes.simulate import simulate
    from .runtimes.solve import solve

__all__ = [
    "Comparison",
    "Diverged",
    "Network",
    "Problem",
    "Run",
    "adasdbo",
    "aid",
    "algorithms",
    "amigo",
    "bsa",
    "callbacks",
    "compare",
    "d_soba",
    "data",
    "diamond",
    "diamond_common",
    "dsbo",
    "dsgd",
    "dsgda_gt",
    "exact_diffusion",
    "extra",
    "f2sa",
    "fab",
    "gossip_dsbo",
    "gt_saga",
    "gt_sarah",
    "gt_sgd",
    "gt_storm",
    "hypergradient",
    "interact",
    "itd",
    "k_free",
    "load",
    "lopa",
    "m_sgd",
    "ma_dsbo",
    "ma_soba",
    "mdbo",
    "method",
    "momentum_tracking",
    "mrbo",
    "network",
    "problems",
    "prometheus",
    "prox",
    "push_diging",
    "report",
    "rsvrb",
    "saba",
    "schedule",
    "sgp",
    "simulate",
    "sldbo",
    "soba",
    "solve",
    "sparkle",
    "stable",
    "stocbio",
    "stream",
    "sustain",
    "svr_interact",
    "theory",
    "ttsa",
    "vrbo",
    "vrdbo",
]

# Where the names come from, when first asked for: `diamond --help` need not wait for JAX. Those
# not listed are modules.
_HOMES = {
    "Comparison": "experiment.comparison",
    "Diverged": "measure.divergence",
    "Network": "network",
    "Problem": "problem",
    "Run": "runs.run",
    "compare": "experiment.comparison",
    "load": "experiment.loading",
    "simulate": "runtimes.simulate",
    "stream": "problem.stream",
}
# Modules with a name of their own here, as in `from diamond.schedule import Power`.
_MODULES = {
    "algorithm": "rounds.algorithm",
    "callbacks": "experiment.callbacks",
    "cost": "core.cost",
    "prox": "problem.prox",
    "schedule": "numbers.schedule",
    "tree": "core.tree",
}
_ALGORITHMS = {path.stem for path in Path(__file__).parent.glob("algorithms/[!_]*.py")}
# A file there is a name here; `solve` runs the method of that name.
_HOMES |= {name: f"algorithms.{name}" for name in _ALGORITHMS} | {"solve": "runtimes.solve"}


def __getattr__(name: str) -> Any:
    if name not in (*__all__, *_HOMES, *_MODULES):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with uncollected():
        module = import_module(f".{_HOMES.get(name) or _MODULES.get(name, name)}", __name__)
    found = getattr(module, name) if name in _HOMES else module
    globals()[name] = found  # asked once
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES})


class _Modules(MetaPathFinder, Loader):
    """Finds the modules of `_MODULES` where they are kept."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        return ModuleSpec(fullname, self) if package == __name__ and name in _MODULES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(f".{_MODULES[spec.name.rpartition('.')[2]]}", __name__)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # it remains what it was: that of the module's own name


sys.meta_path.append(_Modules())
