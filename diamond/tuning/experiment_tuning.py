"""Tuning of an experiment's file: the same trials, seeds and rounds for every algorithm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from ..config.components import Component, as_table
from ..config.experiment_file import Experiment, parse_file, validate
from ..config.validation_errors import BadExperiment, Mistake
from ..experiment.folder_names import make_unique
from ..experiment.jobs import build_problem, use_precision
from ..problem import Problem
from ..records.checkpoint import replace_file
from .experiment_grid import Setting, Table, grid
from .successive_halving import Result, Rung, best, split_by_candidate, tune
from .trial_cache import Trial, TrialRequest, cached_trials, score

FIRST = 100  # first seed of the trials; seeds of the experiment are skipped
TUNED = "tuned.toml"  # in the folder of a tuning: the experiment with the best settings
Results = dict[str, list[Result[Setting]]]  # by the label of the algorithm


@dataclass(frozen=True)
class Tuning:
    """Experiment with the settings to try for each algorithm, by label."""

    raw: dict[str, Any]
    source: Path
    experiment: Experiment
    problem: Problem
    seeds: list[int]
    settings: dict[str, list[Setting]]
    path: Path

    @property
    def trials(self) -> int:
        """Return the number of trials of all algorithms."""
        each = len(self.seeds) * len(self.experiment.network)
        return sum(map(len, self.settings.values())) * each

    def run(self, on_trial: Callable[[int], None]) -> Results:
        """Try all settings of every algorithm; trials of an earlier call are read from the cache.

        Args:
            on_trial: Called with the number of trials that were finished since the last call.
        """
        budget = [Rung(self.experiment.rounds, len(self.seeds))]
        run_trials = partial(self._run_trials, on_trial)
        with use_precision(self.experiment):
            return {
                label: tune(settings, run_trials, self.seeds, budget, late_loss)
                for label, settings in self.settings.items()
            }

    def write(self, results: Results) -> Path:
        """Write the experiment with the best setting of each algorithm."""
        tables = [best(tried).candidate.table for tried in results.values()]
        path = self.path / TUNED
        tuned = self._with(tables, f"{self.experiment.name}-tuned")
        replace_file(path, tuned.to_toml(self.path).encode())
        return path

    def _run_trials(
        self,
        on_trial: Callable[[int], None],
        settings: Sequence[Setting],
        seeds: Sequence[int],
        rounds: int,
    ) -> list[list[Trial]]:
        """Run the named trials of each setting on every network."""
        tried = self._with([setting.table for setting in settings], self.experiment.name)
        trials: list[list[Trial]] = [[] for _ in settings]
        for network in tried.network:

            def trial_request(part: Component, seed: int) -> TrialRequest:
                one = {"network": [network], "algorithm": [part], "seed": [seed], "rounds": rounds}
                single = tried.model_copy(update=one)
                about = {"experiment": single.to_toml(self.path), "sources": single.sources}
                return TrialRequest(part.build(), seed, about)

            found = cached_trials(
                lambda: self.problem,
                network.build(),
                [trial_request(part, seed) for part in tried.algorithm for seed in seeds],
                rounds,
                tried.every,
                self.path / "trials",
                on_trial,
                tried.sampling,
            )
            where = f" on {network.label}" if len(tried.network) > 1 else ""
            names = [f"seed {seed}{where}" for seed in seeds]
            for own, group in zip(trials, split_by_candidate(found, len(seeds))):
                own += [trial | {"name": name} for trial, name in zip(group, names)]
        return trials

    def _with(self, tables: list[Table], name: str) -> Experiment:
        raw = self.raw | {"algorithm": tables, "name": name}
        return validate(raw, self.source.parent, str(self.source))


def tuning(path: Path, changes: list[str], out: Path, seeds: int) -> Tuning:
    """Plan the tuning of the experiment at `path`; raises `BadExperiment`."""
    raw = parse_file(path, changes)
    experiment = validate(raw, path.parent, str(path))
    chosen = list(islice((s for s in count(FIRST) if s not in experiment.seed), seeds))
    given = raw["algorithm"] if isinstance(raw["algorithm"], list) else [raw["algorithm"]]
    tables = [as_table(one, "name", "") for one in given]
    labels = make_unique([one.get("label", one["name"]) for one in tables])
    with use_precision(experiment):
        problem = build_problem(experiment, str(path))
        about = problem, experiment.network[0].build(), chosen[0], path.parent.absolute()
        settings = {label: grid(one, *about) for label, one in zip(labels, tables)}
    _check_equal_counts(settings, len(given) > 1, str(path))
    place = out / f"{experiment.name}-tune"
    return Tuning(raw, path, experiment, problem, chosen, settings, place)


def late_loss(trial: Trial) -> float:
    """Return the mean upper loss over the last fifth of a trial's evaluations."""
    return score(trial)["upper_loss"]


def diverged(result: Result[Setting]) -> dict[str, int]:
    """Return the trials that diverged, with the round of divergence."""
    failed = (trial for trial in result.trials if trial["diverged"] is not None)
    return {trial["name"]: trial["diverged"] for trial in failed}


def edges(tried: list[Result[Setting]]) -> list[str]:
    """List the options whose best value is the smallest or largest tried."""
    found, options = [], best(tried).candidate.options
    for name, value in options.items():
        values = {one.candidate.options[name] for one in tried}
        if len(values) < 2 or not all(isinstance(v, int | float) for v in values):
            continue
        if value in (min(values), max(values)):
            which = "smallest" if value == min(values) else "largest"
            found.append(f"{name} = {value:g} is the {which} that was tried")
    return found


def _check_equal_counts(settings: dict[str, list[Any]], several: bool, source: str) -> None:
    """Raise if algorithms have unequal numbers of settings: more trials find better numbers."""
    counts = [len(found) for found in settings.values()]
    wrong = [
        Mistake(
            f"algorithm[{i}]" if several else "algorithm",
            f"has {own} settings to try, another has {max(counts)}; give every algorithm the "
            f"same number (without lists, each has 27)",
        )
        for i, own in enumerate(counts)
        if own < max(counts)
    ]
    if wrong:
        raise BadExperiment(source, wrong)
