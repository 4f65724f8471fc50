"""In-memory record of a run: history, best point, costs, and the final `Run`."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ..core import cost_counter
from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import Sampling
from ..interface.traffic import Traffic
from ..metrics.early_warnings import EarlyWarnings, standstill_warning
from ..metrics.link_costs import LinkCosts
from ..network import Network
from ..problem import Problem
from ..records import best_point
from ..records.best_point import BestPoint
from ..records.checkpoint_content import Snapshot
from ..records.run import Run
from ..records.run_inputs import describe
from .round_program import Progress
from .step_policy import StepPolicy

Entry = dict[str, float]
OnEvaluation = Callable[[Entry], None]


class RunInputs(NamedTuple):
    """Inputs that the runs of a backend have in common."""

    problem: Problem
    network: Network
    sampling: Sampling
    traffic: Traffic


class Recorder:
    """Recorder of the history of a run."""

    def __init__(
        self,
        inputs: RunInputs,
        steps: StepPolicy,
        seed: int,
        start: tuple[Tree, Tree],
        *,
        links: LinkCosts,
    ):
        self.inputs, self.steps, self.seed, self.links = inputs, steps, seed, links
        self.warnings = EarlyWarnings(inputs.problem, start)
        self.entries: list[Entry] = []
        self.per_agent: list[dict[str, np.ndarray]] = []
        self.best: BestPoint | None = None
        self.without_best = _reason_without_best(inputs.problem, steps, start)
        self.compile_seconds = 0.0
        self.earlier_bytes = 0  # sent by other members before, less what counts for this network

    def add(
        self,
        t: int,
        measured: Mapping[str, float],
        per_agent: Mapping[str, np.ndarray],
        spent: np.ndarray,
        seconds: float,
    ) -> Entry:
        """Add an entry after t rounds.

        Args:
            t: rounds completed.
            measured: measures of all agents together, and learned step sizes.
            per_agent: measures of each agent.
            spent: counters of every agent.
            seconds: time of the rounds.
        """
        resolved, rounds_made = self.steps.resolved, t + self.steps.monitor.rolled_back
        bytes_sent = self.inputs.traffic.count_bytes(self.inputs.network, rounds_made)
        entry = {
            "round": t,
            **{name: float(value) for name, value in measured.items()},
            **{name: float(v) for name, v in zip(Cost._fields, spent.mean(0))},
            "bytes": resolved.bytes + bytes_sent + self.earlier_bytes,
            "seconds": seconds,
            **self.links.costs_after(rounds_made, resolved, seconds),
        }
        self.entries.append(entry)
        self.per_agent.append(dict(per_agent))
        return entry

    def warn(self, state: Any, rounds: int) -> None:
        """Warn of signs of trouble in the last entry, whose state this is, of `rounds` rounds."""
        inputs = self.entries[-1], state, self.steps.algorithm, rounds
        for message in self.warnings.check_entry(*inputs):
            warnings.warn(message, RuntimeWarning, stacklevel=5)

    def update_best(self, point: Callable[[], tuple[Tree, Tree]]) -> None:
        """Store x and y of the last entry, which `point` returns, if they are the best so far."""
        if not self.without_best:
            self.best = best_point.better_point(self.best, self.entries[-1], point)

    def warn_of_standstill(self, x: Any, label: str) -> None:
        """Warn of a run that has ended where it began."""
        first, last = self.entries[0], self.entries[-1]
        if "stationarity" not in first:
            return
        inputs = self.warnings.start, x, last, first["stationarity"]
        if message := standstill_warning(
            *inputs, algorithm=self.steps.algorithm, rounds=int(last["round"])
        ):
            warnings.warn(f"{label}: {message}", RuntimeWarning, stacklevel=5)

    def has_measured(self, round: int) -> bool:
        """Return whether the last entry is that of `round`: an interrupted run may lack it."""
        return bool(self.entries) and self.entries[-1]["round"] == round

    def snapshot(self, arrays: dict[str, Any], seconds: float) -> Snapshot:
        """Return a snapshot for resuming; its lists are shared with the recorder and grow."""
        arrays = arrays | best_point.to_arrays(self.best)
        return Snapshot(arrays, self.steps.memory, seconds, self.entries, self.per_agent)

    def restore(self, saved: Snapshot, state: Any) -> None:
        """Continue after the entries of `saved`; `state` gives the shapes of all agents' arrays."""
        self.entries, self.per_agent = list(saved.entries), list(saved.per_agent)
        self.warnings.restore(self.entries)
        if not self.without_best and all("upper_loss" in entry for entry in self.entries):
            self.best = best_point.from_arrays(state.x, state.y, saved.arrays)

    def roll_back(self, round: int) -> None:
        """Drop the entries after `round`."""
        while self.entries and self.entries[-1]["round"] > round:
            self.entries.pop()
            self.per_agent.pop()

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Return the entries as columns."""
        return _columns(self.entries)

    def run(self, progress: Progress) -> Run:
        """Return the run at `progress`, which has arrays of this process."""
        network, traffic, resolved = self.inputs.network, self.inputs.traffic, self.steps.resolved
        spent = cost_counter.total(progress.spent)
        rounds_made = int(progress.t) + self.steps.monitor.rolled_back
        bytes_by_edge = traffic.count_bytes_by_edge(network, rounds_made)
        setup_bytes = resolved.bytes // max(len(bytes_by_edge), 1)
        requested = self.steps.requested
        end = self.steps.algorithm.describe_end(progress.state)
        answer = best_point.describe_answer(self.best, self.entries, self.without_best)
        algorithm = {"class": type(requested).__name__, "batch": requested.batch}
        return Run(
            last_x=progress.state.x,
            last_y=progress.state.y,
            history=self.history,
            per_agent=_columns(self.per_agent),
            state=progress.state,
            rounds=int(progress.t),
            network=network,
            costs={name: spent[:, i] for i, name in enumerate(Cost._fields)},
            traffic={edge: count + setup_bytes for edge, count in bytes_by_edge.items()},
            messages=traffic.count_messages(network, rounds_made)
            + network.count_messages(resolved.rounds),
            resolved=resolved.values,
            sampling=self.inputs.sampling,
            seed=self.seed,
            compile_seconds=self.compile_seconds,
            best=self.best,
            message="; ".join(filter(None, [end, answer])),
            config={
                "seed": self.seed,
                "sampling": self.inputs.sampling,
                "algorithm": algorithm,
                "rounds": int(progress.t),
            },
            problem=self.inputs.problem,
            turns=traffic.turns,
            inputs=describe(network, requested),
        )


def _reason_without_best(problem: Problem, steps: StepPolicy, start: tuple[Tree, Tree]) -> str:
    """Return why a run stores no best point, or ""."""
    if steps.requested.privacy is not None:
        return "a private run does not choose by losses without noise"
    size = problem.agents * sum(leaf.nbytes for leaf in jax.tree.leaves(start))
    if size > best_point.MOST_BYTES:
        return f"x and y have {size / 2**30:.0f} GiB, of which no second copy is stored"
    return ""


def _columns(entries: list[Any]) -> dict[str, np.ndarray]:
    if not entries:
        return {}
    return {name: np.array([entry[name] for entry in entries]) for name in entries[0]}
