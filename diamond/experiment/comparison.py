"""Comparison of several algorithms on one problem and network, from several seeds."""

import math
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..catalogue import maker
from ..core.sampling import Sampling
from ..core.validation import as_int
from ..engine.many_runs import seeds_together
from ..engine.simulate import check_algorithm, check_setting, simulate
from ..interface.round_interface import Algorithm
from ..metrics import stopping
from ..metrics.display import displayed
from ..metrics.divergence import Diverged
from ..metrics.measures import Measure, parse_measures
from ..metrics.stopping import Stop
from ..network import Network
from ..problem import Problem
from ..records.result_table import ON_LINKS, SPENT, Row, Table, aligned, as_html, over_seeds, row
from ..records.run import Run
from ..records.run_inputs import check_same
from ..records.run_saving import keep, lines, manifest, plain_stop
from .folder_names import apart, folder_name

TOGETHER = "comparison"  # name of the experiment in the manifests of a comparison's runs
COLUMNS = ("algorithm", "metric", "upper_loss", "consensus", "samples", "bytes", "seconds")
WITHOUT_UPPER_LOSS = {"upper_loss": "local_loss"}  # the column that replaces it


@dataclass(frozen=True, repr=False)
class Comparison:
    """Results of `compare`: `runs` by (label, seed), each up to its end or its divergence.

    `diverged` gives the reason of each divergence, `failed` the error of each (label, seed) without
    a run. `problem` is None, and `algorithms` is empty, if `diamond.load` cannot rebuild them.
    """

    problem: Problem | None
    network: Network
    algorithms: dict[str, Algorithm]
    runs: dict[tuple[str, int], Run]
    diverged: dict[tuple[str, int], str]
    wall: dict[tuple[str, int], float]
    rounds: int
    every: int
    stop: dict[str, float | str] = field(default_factory=dict)
    failed: dict[tuple[str, int], str] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """Return one row per algorithm: the mean over the seeds, and the deviation as `*_sd`.

        If runs failed, `failed` is their number.
        """
        found = over_seeds(
            [
                row(_name(label, seed), self._about(label, seed), last(run))
                for (label, seed), run in self.runs.items()
            ]
        )
        failed = Counter(label for label, _ in self.failed)
        known = {one["algorithm"]: one for one in found}
        for label, count in failed.items():
            blank = {"algorithm": label, "network": self.network.title, "seeds": 0, "diverged": 0}
            one = known.setdefault(label, blank)
            one |= {"seeds": one["seeds"] + count, "failed": count}
        labels = dict.fromkeys([*self.algorithms, *known])
        return [known[label] for label in labels if label in known]

    def costs_to_target(self, target: Stop | None = None) -> Table:
        """Tabulate the costs of every run when it first reaches a target.

        Args:
            target: As `stop` of `compare`, {"metric": 1e-3} or {"accuracy": ">= 0.9"}; of several
                targets, the first one reached counts. By default the measures of `stop`.

        Returns:
            A list of dicts that prints as a table and converts to `pandas.DataFrame`, one per
            algorithm and seed: `algorithm`, `seed`, `reached`, and `rounds`, `samples`,
            `gradients`, `hvps`, `jvps` (products with second derivatives), `bytes`, `seconds` up
            to the first evaluation that reaches the target; NaN if no evaluation does.
        """
        own = self.problem.metrics if self.problem else [*next(iter(self.runs.values())).history]
        wanted = stopping.checked(target or self.stop, own, self.network.links)
        wanted = stopping.measures_of(wanted)
        if not wanted:
            raise ValueError('costs_to_target: give a measure to reach, as in {"metric": 1e-3}')
        return Table(self._cost(who, run, wanted) for who, run in self.runs.items())

    def _cost(self, who: tuple[str, int], run: Run, target: Stop) -> Row:
        entries = lines(run)
        i = stopping.first_reached(target, entries)
        spent = {"rounds": "round"} | {name: name for name in SPENT if name in run.history}
        costs = {name: math.nan if i is None else entries[i][key] for name, key in spent.items()}
        return {"algorithm": who[0], "seed": who[1], "reached": i is not None} | costs

    def table(self) -> str:
        """Format the last evaluation of every algorithm as text."""
        return aligned(self._cells())

    def plot(self, path: str | Path = "comparison.png", relative_to: str | None = None) -> Path:
        """Draw curves against rounds, samples, bytes and seconds; needs the extra `plot`.

        Args:
            path: File to write; its ending is .png, .pdf or .svg.
            relative_to: Label of the algorithm that all curves are divided by.

        Returns:
            The path of the file.
        """
        from ..report.figures import draw_files

        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            return draw_files([Path(folder)], [Path(path)], relative_to)[0]

    def save(self, folder: str | Path) -> Path:
        """Save all runs as a folder of run folders, as `diamond compare` does.

        Args:
            folder: Folder to create, for `diamond.load` and `diamond report`.

        Returns:
            The path of the folder.
        """
        folder = Path(folder)
        names = apart(folder_name(_name(label, seed)) for label, seed in self.runs)
        for name, ((label, seed), run) in zip(names, self.runs.items()):
            keep(run, folder / name, self._manifest(label, seed), self.wall[label, seed])
        return folder

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return as_html(self._cells())

    def _cells(self) -> list[list[str]]:
        rows = self.rows()
        own = [*self.problem.metrics] if self.problem else []
        counted = [name for name in ON_LINKS if any(name in found for found in rows)]
        shown = lambda name: name == "algorithm" or any(name in found for found in rows)
        other = {} if shown("upper_loss") else WITHOUT_UPPER_LOSS
        named = [other.get(name, name) for name in (*COLUMNS[:4], *own, *COLUMNS[4:])]
        usual = [name for name in named if shown(name)]
        columns = [*usual, *counted]
        several = len({seed for _, seed in self.runs}) > 1

        def cell(found: Row, name: str) -> str:
            lost = "diverged" if found["diverged"] else "failed"
            value, spread = found.get(name, lost), found.get(f"{name}_sd", 0.0)
            if isinstance(value, str):
                return value
            scale = 1e6 if name == "bytes" else 1.0
            said = f"{value / scale:.4g}"
            return f"{said} ± {spread / scale:.1g}" if several and spread else said

        names = ["MB" if name == "bytes" else name.replace("_", " ") for name in columns]
        names[0] = f"{self.rounds} rounds"
        return [names, *([cell(found, name) for name in columns] for found in rows)]

    def _about(self, label: str, seed: int) -> Row:
        """Return the part of a run's manifest that rows are made of."""
        network, status = {"name": self.network.title}, self.runs[label, seed].status
        about = {"label": label}
        return {"algorithm": about, "network": network, "seed": seed, "status": status}

    def _manifest(self, label: str, seed: int) -> Row:
        about = manifest(self.runs[label, seed], _name(label, seed), label, TOGETHER)
        return about | {"stop": plain_stop(self.stop)}


def compare(
    problem: Problem,
    network: Network,
    algorithms: Mapping[str, Algorithm] | Sequence[str],
    rounds: int,
    seeds: int | Sequence[int] = 1,
    every: int = 100,
    sampling: Sampling = "blocks",
    on_evaluation: Callable[[str, int, dict[str, float]], None] | None = None,
    batched: bool | None = None,
    *,
    stop: Stop | None = None,
    resume: Comparison | None = None,
    progress: bool = True,
    measure: Measure = "exact",
) -> Comparison:
    """Run every algorithm from every seed on the same problem, network and samples.

    A run that diverges or fails does not stop the others: a warning and `failed` give the reason.

    Args:
        problem: Problem to solve.
        network: Network of the agents.
        algorithms: Algorithms by label, {"mine": diamond.diamond(alpha=0.3)}, or names of
            algorithms with their defaults, ["diamond", "gt_sgd"].
        rounds: Number of rounds of each run.
        seeds: Number of seeds, or the seeds themselves.
        every: Rounds between evaluations.
        sampling: As in `simulate`.
        on_evaluation: Called with (label, seed, entry of the history); if `batched`, at the end.
        batched: Run the seeds of an algorithm as one program, with results equal up to rounding. By
            default on an accelerator, which one small run leaves idle, unless the runs choose K.
        stop: Target or budget that ends each run, as in `simulate`; see `costs_to_target`.
        resume: Earlier comparison, as in `resume=diamond.load(folder, problem)`. Its runs continue
            up to `rounds`, except those that diverged; new labels and seeds start at round 0.
        progress: Show all runs on stderr if it is a terminal or a notebook.
        measure: Measures of every run, as in `simulate`.

    Returns:
        The comparison of all runs.

    Raises:
        Exception: The error of the first run, if all runs fail.
    """
    named = dict(algorithms) if isinstance(algorithms, Mapping) else _by_name(algorithms)
    if not named:
        raise ValueError("there is no algorithm to compare; name some, as in ['diamond', 'dsgd']")
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        seeds = range(as_int("seeds", seeds, 1))
    chosen = [as_int("seed", seed) for seed in seeds]
    check_setting(problem, network, rounds, every, sampling)
    for label, algorithm in named.items():
        with _labelled(label):
            check_algorithm(problem, network, algorithm)
    measures = parse_measures(measure, problem)
    own = (*problem.metrics, *(name for name, _ in measures.functions))
    stop = stopping.checked(stop, own, network.links)
    measures.refuse_unmeasured(list(stop), "stop")
    if batched and (stop or resume):
        raise ValueError("batched=True runs all rounds from the start: leave out stop and resume")
    earlier = _resumable(resume, named, network)
    runs: dict[tuple[str, int], Run] = {}
    diverged: dict[tuple[str, int], str] = {}
    wall: dict[tuple[str, int], float] = {}
    errors: dict[tuple[str, int], Exception] = {}
    names = [_name(label, seed) for label in named for seed in chosen]
    with displayed(names, rounds, progress) as display:
        for label, algorithm in named.items():
            fixed = problem, network, algorithm, rounds, every, sampling
            begun = time.monotonic()
            made: dict[int, Run | None] = {}
            alone = bool(stop or resume)  # runs of one program all end in the same round
            if batched or (batched is None and not alone and _together(algorithm, chosen)):
                for seed in chosen:
                    display.begin(_name(label, seed), rounds)
                    display.stage(_name(label, seed), "all seeds as one program")
                try:
                    made = dict(zip(chosen, seeds_together(chosen, *fixed, measure)))
                except Exception as error:
                    errors |= {(label, seed): error for seed in chosen}
                    for seed in chosen:
                        display.end(_name(label, seed), {"status": "failed"})
                    continue
            share = (time.monotonic() - begun) / max(len(chosen), 1)
            for seed in chosen:
                begun = time.monotonic()
                name = _name(label, seed)
                display.begin(name, rounds)
                tell = _Callback(on_evaluation, label, seed, partial(display.progress, name))
                before = earlier.get((label, seed))
                run = before if before and _is_over(before, rounds) else made.get(seed)
                if run is None:  # a single run explains its divergence
                    stage = partial(display.stage, name)
                    try:
                        run, why = _alone(seed, *fixed, tell, stop, before, stage, measure)
                    except Exception as error:
                        if error is tell.error:
                            raise
                        errors[label, seed] = error
                        display.end(name, {"status": "failed"})
                        continue
                    diverged |= {(label, seed): why} if why else {}
                elif run is before:
                    diverged |= {(label, seed): run.message} if run.status == "diverged" else {}
                else:
                    _replay(run, tell)
                runs[label, seed] = run
                status = "diverged" if (label, seed) in diverged else run.status
                display.end(name, {"status": status})
                took = resume.wall.get((label, seed), 0.0) if resume else 0.0
                wall[label, seed] = took + time.monotonic() - begun + share
    if errors and not runs:
        raise next(iter(errors.values()))
    failed = {who: f"{type(error).__name__}: {error}" for who, error in errors.items()}
    for (label, seed), why in failed.items():
        warnings.warn(f"{label}, seed {seed}, failed: {why}", RuntimeWarning, stacklevel=2)
    return Comparison(problem, network, named, runs, diverged, wall, rounds, every, stop, failed)


class _Callback:
    """Wrapper of `on_evaluation` for one run; keeps its errors apart from those of the run."""

    def __init__(
        self,
        function: Callable[..., None] | None,
        label: str,
        seed: int,
        show: Callable[[list[dict[str, float]]], None],
    ):
        self.function, self.who, self.show = function, (label, seed), show
        self.entries: list[dict[str, float]] = []
        self.error: Exception | None = None

    def __call__(self, entry: dict[str, float]) -> None:
        self.entries.append(entry)
        self.show(self.entries)
        try:
            if self.function:
                self.function(*self.who, entry)
        except Exception as error:
            self.error = error
            raise


def _name(label: str, seed: int) -> str:
    """Return the name of a run in rows, folders and the display."""
    return f"{label}-seed{seed}"


def _resumable(
    resume: Comparison | None, algorithms: Mapping[str, Algorithm], network: Network
) -> dict[tuple[str, int], Run]:
    """Return the runs to continue; refuse labels without an algorithm and runs of other inputs."""
    runs = resume.runs if resume else {}
    if unknown := {label for label, _ in runs} - {*algorithms}:
        labels = ", ".join(sorted(unknown))
        raise ValueError(f"resume: no algorithm is labelled {labels}; give it the label it had")
    for (label, _), run in runs.items():
        with _labelled(label):
            check_same(run.inputs, network, algorithms[label])
    return runs


@contextmanager
def _labelled(label: str) -> Iterator[None]:
    """Add the label to an error about its algorithm."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{label}: {error}") from error


def _is_over(run: Run, rounds: int) -> bool:
    """Return whether a run has no rounds left."""
    return run.status == "diverged" or run.rounds >= rounds


def _alone(
    seed: int,
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    every: int,
    sampling: Sampling,
    tell: Callable[[dict[str, float]], None],
    stop: Stop,
    resume: Run | None,
    on_stage: Callable[[str], None],
    measure: Measure,
) -> tuple[Run, str]:
    """Execute one run; return it with the reason of its divergence, if any."""
    given = problem, network, algorithm, rounds, seed, every, sampling, tell
    try:
        options: dict[str, Any] = {
            "stop": stop,
            "resume": resume,
            "on_stage": on_stage,
            "measure": measure,
        }
        return simulate(*given, **options), ""
    except Diverged as error:
        return error.run, str(error)


def _together(algorithm: Algorithm, seeds: Sequence[int]) -> bool:
    """Return whether one program for all seeds is faster here."""
    return jax.default_backend() != "cpu" and len(seeds) > 1


def _replay(run: Run, tell: Callable[[dict[str, float]], None]) -> None:
    for i in range(len(run.history["round"])):
        tell({name: values[i].item() for name, values in run.history.items()})


def last(run: Run) -> dict[str, float]:
    """Return the last evaluation of a run."""
    return {name: np.asarray(values)[-1].item() for name, values in run.history.items()}


def _by_name(names: Sequence[str]) -> dict[str, Algorithm]:
    """Build algorithms with their defaults."""
    names = [names] if isinstance(names, str) else names
    plain = [name.lower().replace("-", "_") for name in names]
    for name, count in Counter(plain).items():
        if count > 1:
            raise ValueError(
                f"{name!r} is named {count} times; name it once, or give labels to its variants, "
                f"as in {{'small': diamond.{name}(batch=8), 'large': diamond.{name}(batch=64)}}"
            )
    return {name: maker(one)() for name, one in zip(names, plain)}
