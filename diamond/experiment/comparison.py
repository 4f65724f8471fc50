"""Several algorithms on one problem and network, from several seeds, side by side."""

import html
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np

from ..catalogue import maker
from ..core.sampling import Sampling
from ..core.whole_numbers import whole
from ..measure.divergence import Diverged
from ..network import Network
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from ..runs.run import Run
from ..runs.saving import keep, manifest
from ..runs.table import ON_LINKS, Row, over_seeds, row
from ..runtimes.many import depth_known, seeds_together
from ..runtimes.simulate import check, simulate
from .folder_names import apart, folder_name

COLUMNS = ("algorithm", "metric", "upper_loss", "consensus", "samples", "bytes", "seconds")


@dataclass(frozen=True, repr=False)
class Comparison:
    """`runs` by (label, seed), those that diverged until then; `diverged` says why they did.

    `failed` says of each (label, seed) without a run which error ended it.
    """

    problem: Problem
    network: Network
    algorithms: dict[str, Algorithm]
    runs: dict[tuple[str, int], Run]
    diverged: dict[tuple[str, int], str]
    wall: dict[tuple[str, int], float]
    rounds: int
    every: int
    failed: dict[tuple[str, int], str] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """One row an algorithm: the mean over the seeds, and the deviation as `*_sd`.

        Where runs failed, `failed` is how many.
        """
        found = over_seeds(
            [
                row(f"{label}-seed{seed}", self._manifest(label, seed), last(run))
                for (label, seed), run in self.runs.items()
            ]
        )
        failed = Counter(label for label, _ in self.failed)
        known = {one["algorithm"]: one for one in found}
        for label, count in failed.items():
            blank = {"algorithm": label, "network": self.network.title, "seeds": 0, "diverged": 0}
            one = known.setdefault(label, blank)
            one |= {"seeds": one["seeds"] + count, "failed": count}
        return [known[label] for label in self.algorithms if label in known]

    def table(self) -> str:
        """The last evaluation of every algorithm, for the eye."""
        given = self._cells()
        widths = [max(map(len, column)) for column in zip(*given)]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths))
            )
            for line in given
        ]
        return "\n".join(line.rstrip() for line in lines)

    def plot(self, out: str | Path = "figures", relative_to: str | None = None) -> list[Path]:
        """Curves against rounds, samples, bytes and seconds, as PNG and PDF in the folder `out`."""
        from ..report.figures import draw

        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            return draw([Path(folder)], Path(out), relative_to)

    def save(self, folder: str | Path) -> Path:
        """A folder of run folders, as `diamond compare` leaves them: for `diamond report`."""
        folder = Path(folder)
        names = apart(folder_name(f"{label}-seed{seed}") for label, seed in self.runs)
        for name, ((label, seed), run) in zip(names, self.runs.items()):
            keep(run, folder / name, self._manifest(label, seed), self.wall[label, seed])
        return folder

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        line = lambda tag, cells: "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells)
        lines = "".join(f"<tr>{line('td', cells)}</tr>" for cells in body)
        return f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>{lines}</tbody></table>"

    def _cells(self) -> list[list[str]]:
        rows = self.rows()
        own = [name for name in self.problem.metrics]
        counted = [name for name in ON_LINKS if any(name in found for found in rows)]
        columns = [*COLUMNS[:4], *own, *COLUMNS[4:], *counted]
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

    def _manifest(self, label: str, seed: int) -> Row:
        return manifest(self.runs[label, seed], f"{label}-seed{seed}", label, "comparison")


def compare(
    problem: Problem,
    algorithms: Mapping[str, Algorithm] | Sequence[str],
    network: Network,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    every: int = 100,
    sampling: Sampling = "blocks",
    on_evaluation: Callable[[str, int, dict[str, float]], None] | None = None,
    batched: bool | None = None,
) -> Comparison:
    """Every algorithm from every seed, on the same problem, network, draws and number of rounds.

    `algorithms` are named by you, {"mine": diamond.diamond(alpha=0.3)}, or by their own names with
    their own defaults, ["diamond", "gt_sgd"]. `seeds` is how many, or which. A run that diverges or
    fails does not stop the others: a warning and `failed` say why it failed; where all fail, the
    error of the first is raised. `on_evaluation` is handed (label, seed, entry of the history).
    `batched`: the seeds of an algorithm as one program, the same to rounding; by default on an
    accelerator, which one small run leaves idle, unless K is left to the runs to find.
    `on_evaluation` is told at the end then.
    """
    named = dict(algorithms) if isinstance(algorithms, Mapping) else _by_name(algorithms)
    if not named:
        raise ValueError("there is no algorithm to compare; name some, as in ['diamond', 'dsgd']")
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        seeds = range(whole("seeds", seeds, 1))
    chosen = [whole("seed", seed) for seed in seeds]
    runs: dict[tuple[str, int], Run] = {}
    diverged: dict[tuple[str, int], str] = {}
    wall: dict[tuple[str, int], float] = {}
    errors: dict[tuple[str, int], Exception] = {}
    for algorithm in named.values():
        check(problem, network, algorithm, rounds, every, sampling)
    for label, algorithm in named.items():
        fixed = problem, network, algorithm, rounds, every, sampling
        begun = time.monotonic()
        made: dict[int, Run | None] = {}
        if _together(algorithm, chosen) if batched is None else batched:
            try:
                made = dict(zip(chosen, seeds_together(chosen, *fixed)))
            except Exception as error:
                errors |= {(label, seed): error for seed in chosen}
                continue
        share = (time.monotonic() - begun) / max(len(chosen), 1)
        for seed in chosen:
            tell = _Callback(on_evaluation, label, seed)
            begun = time.monotonic()
            run = made.get(seed)
            if run is None:  # to be made, or anew: alone, it says why it diverges
                try:
                    run, why = _alone(seed, *fixed, tell)
                except Exception as error:
                    if error is tell.error:
                        raise
                    errors[label, seed] = error
                    continue
                diverged |= {(label, seed): why} if why else {}
            else:
                _replay(run, tell)
            runs[label, seed] = run
            wall[label, seed] = time.monotonic() - begun + share
    if errors and not runs:
        raise next(iter(errors.values()))
    failed = {who: f"{type(error).__name__}: {error}" for who, error in errors.items()}
    for (label, seed), why in failed.items():
        warnings.warn(f"{label}, seed {seed}, failed: {why}", RuntimeWarning, stacklevel=2)
    return Comparison(problem, network, named, runs, diverged, wall, rounds, every, failed)


class _Callback:
    """`on_evaluation` of one run; an error of its own is kept apart from those of the run."""

    def __init__(self, function: Callable[..., None] | None, label: str, seed: int):
        self.function, self.who = function, (label, seed)
        self.error: Exception | None = None

    def __call__(self, entry: dict[str, float]) -> None:
        try:
            if self.function:
                self.function(*self.who, entry)
        except Exception as error:
            self.error = error
            raise


def _alone(
    seed: int,
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    every: int,
    sampling: Sampling,
    tell: Callable[[dict[str, float]], None],
) -> tuple[Run, str]:
    """One run, and why it diverged if it did."""
    try:
        return simulate(problem, network, algorithm, rounds, seed, every, sampling, tell), ""
    except Diverged as error:
        return error.run, str(error)


def _together(algorithm: Algorithm, seeds: Sequence[int]) -> bool:
    """Whether one program for all seeds is the faster way here."""
    return jax.default_backend() != "cpu" and len(seeds) > 1 and depth_known(algorithm)


def _replay(run: Run, tell: Callable[[dict[str, float]], None]) -> None:
    for i in range(len(run.history["round"])):
        tell({name: values[i].item() for name, values in run.history.items()})


def last(run: Run) -> dict[str, float]:
    """The last evaluation of a run."""
    return {name: np.asarray(values)[-1].item() for name, values in run.history.items()}


def _by_name(names: Sequence[str]) -> dict[str, Algorithm]:
    """Algorithms with their own defaults."""
    names = [names] if isinstance(names, str) else names
    plain = [name.lower().replace("-", "_") for name in names]
    for name, count in Counter(plain).items():
        if count > 1:
            raise ValueError(
                f"{name!r} is named {count} times; name it once, or give labels to its variants, "
                f"as in {{'small': diamond.{name}(batch=8), 'large': diamond.{name}(batch=64)}}"
            )
    return {name: maker(one)() for name, one in zip(names, plain)}
