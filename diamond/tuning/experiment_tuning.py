"""Fair tuning of one's own experiment: as many trials, as long, on the same draws, for all."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice, product
from pathlib import Path
from typing import Any

from ..config.components import table
from ..config.experiment import Experiment, parsed, read
from ..config.validation_errors import BadExperiment, Mistake
from ..engine.trial_cache import Trial, Wanted, remembered, score
from ..experiment.jobs import apart, build, precision
from ..metrics.display import displayed
from ..problem import Problem
from ..runs.checkpoint import replace
from .experiment_grid import Table, grid

FIRST = 100  # seeds of the trials are from here on, those of the experiment left out
NAME = "trials"  # in the display, all together
TUNED = "tuned.toml"  # in the folder of a tuning: the experiment with what was found


@dataclass(frozen=True)
class Tried:
    """One setting of an algorithm, and what became of its trials."""

    options: dict[str, Any]  # what tells it from the others
    table: Table
    upper_loss: float  # late, the mean over seeds and networks; infinite if any trial is out
    diverged: dict[str, int]  # which trials did, and in which round


@dataclass(frozen=True)
class Tuning:
    """What is to be tried: the settings of each algorithm, by its label."""

    raw: dict[str, Any]
    source: Path
    experiment: Experiment
    problem: Problem
    seeds: list[int]
    settings: dict[str, list[tuple[Table, dict[str, Any]]]]
    path: Path

    @property
    def trials(self) -> int:
        """How many, all together."""
        each = len(self.seeds) * len(self.experiment.network)
        return sum(map(len, self.settings.values())) * each

    def run(self, on_trial: Callable[[int], None], progress: bool = True) -> dict[str, list[Tried]]:
        """All settings of every algorithm; those of earlier sittings are remembered.

        `on_trial` is told how many more trials are done; `progress` shows that on the error output
        if that is a terminal or a notebook.
        """
        done = 0
        with displayed([NAME], self.experiment.rounds, progress) as display:
            display.begin(NAME, self.experiment.rounds)

            def count(trials: int) -> None:
                nonlocal done
                done += trials
                display.stage(NAME, f"{done} of {self.trials} made")
                on_trial(trials)

            with precision(self.experiment):
                return {
                    label: self._tried(settings, count) for label, settings in self.settings.items()
                }

    def write(self, found: dict[str, list[Tried]]) -> Path:
        """The experiment with the best setting of each algorithm, as a file."""
        tables = [best(tried).table for tried in found.values()]
        tuned = self._with(tables, f"{self.experiment.name}-tuned")
        path = self.path / TUNED
        replace(path, tuned.toml(self.path).encode())
        return path

    def _tried(
        self, settings: list[tuple[Table, dict[str, Any]]], on_trial: Callable[[int], None]
    ) -> list[Tried]:
        cut = self._with([own for own, _ in settings], self.experiment.name)
        networks = cut.network
        trials: list[dict[str, Trial]] = [{} for _ in settings]
        for network in networks:
            chosen = list(product(range(len(settings)), self.seeds))
            wanted = [self._wanted(cut, i, network, seed) for i, seed in chosen]
            made = remembered(
                lambda: self.problem,
                network.build(),
                wanted,
                cut.rounds,
                cut.every,
                self.path / "trials",
                on_trial,
                cut.sampling,
            )
            for (i, seed), trial in zip(chosen, made):
                where = f" on {network.label}" if len(networks) > 1 else ""
                trials[i][f"seed {seed}{where}"] = trial
        return [_outcome(*setting, own) for setting, own in zip(settings, trials)]

    def _wanted(self, cut: Experiment, i: int, network: Any, seed: int) -> Wanted:
        """A trial, by all that fixes its numbers."""
        one = {"network": [network], "algorithm": [cut.algorithm[i]], "seed": [seed]}
        single = cut.model_copy(update=one)
        about = {"experiment": single.toml(self.path), "sources": single.sources}
        return Wanted(cut.algorithm[i].build(), seed, about)

    def _with(self, tables: list[Table], name: str) -> Experiment:
        raw = self.raw | {"algorithm": tables, "name": name}
        return read(raw, self.source.parent, str(self.source))


def tuning(path: Path, changes: list[str], out: Path, seeds: int) -> Tuning:
    """What is to be tried of the experiment at `path`; raises `BadExperiment`."""
    raw = parsed(path, changes)
    experiment = read(raw, path.parent, str(path))
    chosen = list(islice((s for s in count(FIRST) if s not in experiment.seed), seeds))
    given = raw["algorithm"] if isinstance(raw["algorithm"], list) else [raw["algorithm"]]
    tables = [table(one, "name", "") for one in given]
    labels = apart([one.get("label", one["name"]) for one in tables])
    with precision(experiment):
        problem = build(experiment, str(path))
        about = problem, experiment.network[0].build(), chosen[0], path.parent.absolute()
        settings = {label: grid(one, *about) for label, one in zip(labels, tables)}
    _fair(settings, len(given) > 1, str(path))
    place = out / f"{experiment.name}-tune"
    return Tuning(raw, path, experiment, problem, chosen, settings, place)


def best(tried: list[Tried]) -> Tried:
    """The setting with the smallest late upper loss."""
    return min(tried, key=lambda one: one.upper_loss)


def edges(tried: list[Tried]) -> list[str]:
    """In what the best setting is the smallest or the largest that was tried."""
    found, options = [], best(tried).options
    for name, value in options.items():
        values = {one.options[name] for one in tried}
        if len(values) < 2 or not all(isinstance(v, int | float) for v in values):
            continue
        if value in (min(values), max(values)):
            which = "smallest" if value == min(values) else "largest"
            found.append(f"{name} = {value:g} is the {which} that was tried")
    return found


def _fair(settings: dict[str, list[Any]], several: bool, source: str) -> None:
    """As many for each: more trials find better numbers, whatever the algorithm."""
    counts = [len(found) for found in settings.values()]
    wrong = [
        Mistake(
            f"algorithm[{i}]" if several else "algorithm",
            f"has {own} settings to try, another has {max(counts)}; give every algorithm as many "
            f"(without lists, each has 27)",
        )
        for i, own in enumerate(counts)
        if own < max(counts)
    ]
    if wrong:
        raise BadExperiment(source, wrong)


def _outcome(own: Table, options: dict[str, Any], trials: dict[str, Trial]) -> Tried:
    loss = sum(score(trial)["upper_loss"] for trial in trials.values()) / len(trials)
    failed = {who: t["diverged"] for who, t in trials.items() if t["diverged"] is not None}
    return Tried(options, own, loss if math.isfinite(loss) else math.inf, failed)
