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
from ..records.checkpoint_file import replace_file
from .experiment_grid import AlgorithmTable, TableSetting, list_settings
from .successive_halving import Result, Rung, best_result, split_by_candidate, tune
from .trial_cache import Trial, TrialRequest, cached_trials, summarize_trial

FIRST_SEED = 100  # first seed of the trials; seeds of the experiment are skipped
TUNED_FILE = "tuned.toml"  # in the folder of a tuning: the experiment with the best settings
TuningResults = dict[str, list[Result[TableSetting]]]  # by the label of the algorithm


@dataclass(frozen=True)
class Tuning:
    """Experiment with the settings to try for each algorithm, by label."""

    raw: dict[str, Any]
    source: Path
    experiment: Experiment
    problem: Problem
    seeds: list[int]
    settings: dict[str, list[TableSetting]]
    path: Path

    @property
    def trials(self) -> int:
        """Return the number of trials of all algorithms."""
        trials_per_setting = len(self.seeds) * len(self.experiment.network)
        return sum(map(len, self.settings.values())) * trials_per_setting

    def run(self, on_trial: Callable[[int], None]) -> TuningResults:
        """Try all settings of every algorithm; trials of an earlier call are read from the cache.

        Args:
            on_trial: Called with the number of trials that were finished since the last call.
        """
        budget = [Rung(self.experiment.rounds, len(self.seeds))]
        run_trials = partial(self._run_trials, on_trial)
        late_upper_loss = lambda trial: summarize_trial(trial)["upper_loss"]
        with use_precision(self.experiment):
            return {
                label: tune(settings, run_trials, self.seeds, budget, late_upper_loss)
                for label, settings in self.settings.items()
            }

    def write(self, results: TuningResults) -> Path:
        """Write the experiment with the best setting of each algorithm."""
        tables = [best_result(candidates).candidate.table for candidates in results.values()]
        path = self.path / TUNED_FILE
        tuned = self._with_algorithms(tables, f"{self.experiment.name}-tuned")
        replace_file(path, tuned.to_toml(self.path).encode())
        return path

    def _run_trials(
        self,
        on_trial: Callable[[int], None],
        settings: Sequence[TableSetting],
        seeds: Sequence[int],
        rounds: int,
    ) -> list[list[Trial]]:
        """Run the named trials of each setting on every network."""
        experiment = self._with_algorithms(
            [setting.table for setting in settings], self.experiment.name
        )
        trials: list[list[Trial]] = [[] for _ in settings]
        for network in experiment.network:

            def trial_request(part: Component, seed: int, network: Any = network) -> TrialRequest:
                fields = {
                    "network": [network],
                    "algorithm": [part],
                    "seed": [seed],
                    "rounds": rounds,
                }
                trial_experiment = experiment.model_copy(update=fields)
                description = {
                    "experiment": trial_experiment.to_toml(self.path),
                    "sources": trial_experiment.sources,
                }
                return TrialRequest(part.build(), seed, description)

            results = cached_trials(
                lambda: self.problem,
                network.build(),
                [trial_request(part, seed) for part in experiment.algorithm for seed in seeds],
                rounds,
                every=experiment.every,
                folder=self.path / "trials",
                on_trial=on_trial,
                sampling=experiment.sampling,
            )
            suffix = f" on {network.label}" if len(experiment.network) > 1 else ""
            names = [f"seed {seed}{suffix}" for seed in seeds]
            for setting_trials, group in zip(trials, split_by_candidate(results, len(seeds))):
                setting_trials += [trial | {"name": name} for trial, name in zip(group, names)]
        return trials

    def _with_algorithms(self, tables: list[AlgorithmTable], name: str) -> Experiment:
        raw = self.raw | {"algorithm": tables, "name": name}
        return validate(raw, self.source.parent, str(self.source))


def plan_tuning(path: Path, changes: list[str], out: Path, seeds: int) -> Tuning:
    """Plan the tuning of the experiment at `path`; raises `BadExperiment`."""
    raw = parse_file(path, changes)
    experiment = validate(raw, path.parent, str(path))
    trial_seeds = list(islice((s for s in count(FIRST_SEED) if s not in experiment.seed), seeds))
    algorithms = raw["algorithm"] if isinstance(raw["algorithm"], list) else [raw["algorithm"]]
    tables = [as_table(table, "name", "") for table in algorithms]
    labels = make_unique([table.get("label", table["name"]) for table in tables])
    with use_precision(experiment):
        problem = build_problem(experiment, str(path))
        context = problem, experiment.network[0].build(), trial_seeds[0], path.parent.absolute()
        settings = {label: list_settings(table, *context) for label, table in zip(labels, tables)}
    _check_equal_counts(settings, len(algorithms) > 1, str(path))
    folder = out / f"{experiment.name}-tune"
    return Tuning(raw, path, experiment, problem, trial_seeds, settings, folder)


def diverged_trials(result: Result[TableSetting]) -> dict[str, int]:
    """Return the trials that diverged, with the round of divergence."""
    failed = (trial for trial in result.trials if trial["diverged"] is not None)
    return {trial["name"]: trial["diverged"] for trial in failed}


def edge_options(results: list[Result[TableSetting]]) -> list[str]:
    """List the options whose best value is the smallest or largest tried."""
    messages, options = [], best_result(results).candidate.options
    for name, value in options.items():
        values = {result.candidate.options[name] for result in results}
        if len(values) < 2 or not all(isinstance(v, int | float) for v in values):
            continue
        if value in (min(values), max(values)):
            which = "smallest" if value == min(values) else "largest"
            messages.append(f"{name} = {value:g} is the {which} that was tried")
    return messages


def _check_equal_counts(settings: dict[str, list[Any]], several: bool, source: str) -> None:
    """Raise if algorithms have unequal numbers of settings: more trials find better numbers."""
    counts = [len(candidates) for candidates in settings.values()]
    mistakes = [
        Mistake(
            f"algorithm[{i}]" if several else "algorithm",
            f"has {setting_count} settings to try, another has {max(counts)}; give every algorithm "
            f"the same number (without lists, each has 27)",
        )
        for i, setting_count in enumerate(counts)
        if setting_count < max(counts)
    ]
    if mistakes:
        raise BadExperiment(source, mistakes)
