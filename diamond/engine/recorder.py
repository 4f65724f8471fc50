"""The history of a run while it is made."""

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import NamedSharding

from ..core import cost
from ..core.cost import Cost
from ..core.sampling import Sampling
from ..core.tree import Tree
from ..machine.memory import Budget, Fitted
from ..metrics.early_warnings import EarlyWarnings
from ..metrics.exact import looked_at, observe
from ..metrics.link_costs import LinkCosts
from ..network import Network
from ..numbers.open_numbers import Found, Resolved
from ..problem import Objectives, Problem, Rows
from ..rounds.algorithm import Algorithm
from ..rounds.traffic import traffic
from ..runs import best_point
from ..runs.best_point import Best
from ..runs.run import Run
from ..runs.snapshot import Snapshot

MEASURING = "a measurement on all rows", "fewer rows an agent, or more devices"


class Place(Protocol):
    """Where the agents' arrays are: on one device, or cut over several."""

    @property
    def objectives(self) -> Objectives: ...

    @property
    def rows(self) -> Rows: ...  # that metrics are measured on

    @property
    def agents(self) -> int | None: ...  # how many places are agents, the first ones; None: all

    @property
    def abreast(self) -> int: ...  # of a device's agents, how many are measured side by side

    @property
    def budget(self) -> Budget: ...  # the memory there is

    @property
    def shared(self) -> NamedSharding | None: ...  # on every device

    def whole(self, tree: Tree) -> Tree: ...  # as arrays of this process


class Record:
    """Measures a run's progress now and then, and becomes the `Run` at its end."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        place: Place,
        seed: int,
        sampling: Sampling,
        resolved: Resolved,
    ):
        self.problem, self.network, self.algorithm = problem, network, algorithm
        self.place = place
        x, y = problem.start(seed)
        self.traffic = traffic(algorithm, place.objectives, x, y, network.channels)
        self.link_costs = LinkCosts(network, self.traffic, seed)
        self.seed, self.sampling, self.resolved = seed, sampling, resolved
        self.compile_seconds = 0.0
        self.observe = Fitted(observe, place.abreast, place.budget, *MEASURING)
        self.probes = looked_at(problem, y, seed, place.objectives.train.count.shape[0])
        self.signs = EarlyWarnings(problem, seed)
        self.entries: list[dict[str, float]] = []
        self.own: list[dict[str, np.ndarray]] = []
        self.best: Best | None = None
        self.inputs: dict[str, dict[str, str]] = {}  # of `runs.inputs.describe`

    def add(
        self,
        progress: Any,
        seconds: float,
        on_evaluation: Callable[[dict[str, float]], None] | None = None,
        rounds: int = 0,
    ) -> None:
        """Measure where the run stands after `seconds` of rounds, of a run of `rounds` rounds."""
        found, own = self.observe(*self._look(progress.state))
        state, spent = self.place.whole((progress.state, progress.spent))
        spent = cost.total(spent)
        entry = {"round": int(progress.t), **{name: float(v) for name, v in found.items()}}
        if hasattr(self.algorithm, "learned"):
            learned = self.algorithm.learned(state)
            entry |= {name: float(np.mean(value)) for name, value in learned.items()}
        entry |= {name: float(v) for name, v in zip(Cost._fields, spent.mean(0))}
        sent = self.network.count_messages(self.rounds_made(progress)) * self.traffic.bytes
        entry |= {"bytes": self.resolved.bytes + sent, "seconds": seconds}
        entry |= self.link_costs.after(self.rounds_made(progress), self.resolved, seconds)
        for said in self.signs.look(entry, state, self.algorithm, rounds):
            warnings.warn(said, RuntimeWarning, stacklevel=4)
        self.entries.append(entry)
        self.best = best_point.better(self.best, entry, state.x, state.y)
        own = self.place.whole(own)
        self.own.append({name: np.asarray(value) for name, value in own.items()})
        if on_evaluation:
            on_evaluation(dict(entry))

    def has_measured(self, round: int) -> bool:
        """Whether the last evaluation is that of `round`: it may have been lost."""
        return bool(self.entries) and self.entries[-1]["round"] == round

    def begin(self, progress: Any) -> None:
        """Compile what measures, beside what is compiled meanwhile."""
        if jax.process_count() == 1:  # processes of one job compile alike, one after another
            self.observe.begin(*self._look(progress.state))

    def _look(self, state: Any) -> tuple[Any, ...]:
        place, metrics = self.place, tuple(self.problem.metrics.items())
        z = getattr(state, "z", None) if self.problem.lower_level == "common" else None
        where = state.x, state.y, z, self.probes, place.agents, place.shared
        return place.objectives, place.rows, metrics, *where

    def snapshot(self, arrays: dict[str, Any], found: dict[str, Found], seconds: float) -> Snapshot:
        """What it takes to go on from here; the lists are the record's own and grow with it."""
        arrays = arrays | best_point.arrays(self.best)
        return Snapshot(arrays, found, seconds, self.entries, self.own)

    def restore(self, saved: Snapshot, state: Any) -> None:
        """Go on after what was measured before; `state` is one of all agents, for its shapes."""
        self.entries, self.own = list(saved.entries), list(saved.own)
        if self.entries and np.isfinite(self.entries[0]["stationarity"]):
            self.signs.first = self.entries[0]["stationarity"]
        self.best = best_point.restored(state.x, state.y, saved.arrays)

    def renumber(self, algorithm: Algorithm, resolved: Resolved) -> None:
        """From here on, the run has these numbers."""
        self.algorithm, self.resolved = algorithm, resolved

    def rewind(self, round: int) -> None:
        """Forget what was measured after `round`."""
        kept = sum(entry["round"] <= round for entry in self.entries)
        del self.entries[kept:], self.own[kept:]

    def rounds_made(self, progress: Any) -> int:
        """Rounds made, those that the run went back on too."""
        return int(progress.t) + int(self.resolved.numbers.get("lost", 0))

    def run(self, progress: Any) -> Run:
        """The run as it stands at `progress`."""
        arrays = lambda dicts: {name: np.array([d[name] for d in dicts]) for name in dicts[0]}
        spent = cost.total(progress.spent)
        edges, setup = self.network.edges, self.resolved
        made = self.rounds_made(progress)
        each = setup.bytes // max(len(edges), 1)
        uses, size = self.network.uses(made), self.traffic.bytes
        return Run(
            x=progress.state.x,
            y=progress.state.y,
            history=arrays(self.entries),
            per_agent=arrays(self.own),
            state=progress.state,
            rounds=int(progress.t),
            network=self.network,
            costs={name: spent[:, i] for i, name in enumerate(Cost._fields)},
            traffic={edge: count * size + each for edge, count in uses.items()},
            messages=self.network.count_messages(made) * self.traffic.exchanges
            + self.network.count_messages(setup.rounds),
            resolved=setup.numbers,
            sampling=self.sampling,
            seed=self.seed,
            compile_seconds=self.compile_seconds,
            best=self.best,
            config={"seed": self.seed, "sampling": self.sampling, "algorithm": self._about()},
            problem=self.problem,
            turns=self.traffic.turns,
            inputs=self.inputs,
        )

    def _about(self) -> dict[str, Any]:
        """What can be said of an algorithm made in Python."""
        return {"class": type(self.algorithm).__name__, "batch": self.algorithm.batch}
