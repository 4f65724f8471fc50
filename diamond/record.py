"""The history of a run while it is made."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from . import cost, lower
from .algorithm import Algorithm
from .cost import Cost
from .hypergradient.lipschitz import in_use
from .measure import observe
from .network import Network
from .problem import Objectives, Problem
from .run import Run
from .sampling import Sampling, key


class Record:
    """Measures a run's progress now and then, and becomes the `Run` at its end."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        objectives: Objectives,
        seed: int,
        sampling: Sampling,
        resolved: dict[str, float],
        compile_seconds: float,
    ):
        self.problem, self.network, self.algorithm = problem, network, algorithm
        self.objectives, self.rows = objectives, problem.stack(problem.measured)
        self.seed, self.sampling, self.resolved = seed, sampling, resolved
        self.compile_seconds = compile_seconds
        self.dtype = jax.tree.leaves(problem.start(seed)[1])[0].dtype
        self.warned = False
        self.entries: list[dict[str, float]] = []
        self.own: list[dict[str, np.ndarray]] = []

    def add(
        self,
        progress: Any,
        seconds: float,
        on_evaluation: Callable[[dict[str, float]], None] | None = None,
    ) -> None:
        """Measure where the run stands after `seconds` of rounds."""
        state = progress.state
        metrics = tuple(self.problem.metrics.items())
        place = self.objectives, self.rows, metrics, state.x, state.y, key(self.seed)
        found, own = observe(*place)
        spent = cost.total(progress.spent)
        entry = {"round": int(progress.t), **{name: float(v) for name, v in found.items()}}
        entry |= {name: float(v) for name, v in zip(Cost._fields, spent.mean(0))}
        sent = message_bytes(self.algorithm, state) * 2 * len(self.network.edges)
        entry |= {"bytes": int(progress.t) * sent, "seconds": seconds}
        self.look(entry)
        self.entries.append(entry)
        self.own.append({name: np.asarray(value) for name, value in own.items()})
        if on_evaluation:
            on_evaluation(dict(entry))

    def look(self, entry: dict[str, float]) -> None:
        """Warn of what makes an entry, or the run, doubtful."""
        allowed = lower.tolerance(self.dtype)
        overflown = not np.isfinite(entry["metric"])  # on its way to diverge: that will be said
        if entry["solver_error"] > 100 * allowed and not overflown:
            warnings.warn(
                f"y* is known to {entry['solver_error']:.1e} only at round {entry['round']} "
                f"({allowed:.1e} is wanted), so the measures there are rough; is the lower level "
                f"strongly convex in y?",
                RuntimeWarning,
                stacklevel=4,
            )
        chain, seen = in_use(self.algorithm), entry["curvature"]
        if chain is not None and seen > chain and not self.warned:
            self.warned = True
            warnings.warn(
                f"mini-batch Hessians g_yy have eigenvalues up to {seen:.3g} at round "
                f"{entry['round']}, above lipschitz = {chain:.3g} that eq. (5) divides by: the "
                f"hypergradient is off, and beyond {2 * chain:.3g} it explodes; give lipschitz = "
                f"{1.5 * seen:.2g} or more",
                RuntimeWarning,
                stacklevel=4,
            )

    def run(self, progress: Any) -> Run:
        """The run as it stands at `progress`."""
        arrays = lambda dicts: {name: np.array([d[name] for d in dicts]) for name in dicts[0]}
        spent = cost.total(progress.spent)
        sent = 2 * int(progress.t) * message_bytes(self.algorithm, progress.state)
        return Run(
            x=progress.state.x,
            y=progress.state.y,
            history=arrays(self.entries),
            agents=arrays(self.own),
            state=progress.state,
            rounds=int(progress.t),
            network=self.network,
            costs={name: spent[:, i] for i, name in enumerate(Cost._fields)},
            traffic={edge: sent for edge in self.network.edges},
            messages=int(progress.t) * 2 * len(self.network.edges),
            resolved=self.resolved,
            sampling=self.sampling,
            seed=self.seed,
            compile_seconds=self.compile_seconds,
        )


def message_bytes(algorithm: Algorithm, state: Any) -> int:
    """Bytes of the message that one agent sends in a round; `state` is that of all agents."""
    one = jax.tree.map(lambda a: a[0], state)
    message = jax.eval_shape(algorithm.outgoing, one)
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(message))
