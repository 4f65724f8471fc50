"""Results of a comparison of algorithms: rows, tables, costs to a target, pictures, folders."""

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..interface.round_interface import Algorithm
from ..metrics import stopping
from ..metrics.stopping import Stop
from ..network import Network
from ..problem import Problem
from ..records.folder_reader import StoredRun
from ..records.result_table import (
    COST_COLUMNS,
    LINK_COLUMNS,
    Table,
    TableRow,
    average_over_seeds,
    format_aligned,
    format_html,
    make_row,
)
from ..records.run import Run
from ..records.run_saving import history_lines, make_manifest, save_run, stop_to_json
from .folder_names import folder_name, make_unique

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARISON_NAME = "comparison"  # name of the experiment in the manifests of a comparison's runs
COLUMNS = ("algorithm", "upper_loss", "metric", "consensus", "samples", "bytes", "seconds")
WITHOUT_UPPER_LOSS = {"upper_loss": "local_loss"}  # the column that replaces it


@dataclass(frozen=True, repr=False)
class Comparison:
    """Results of `compare`: `runs` by (label, seed), each up to its end or its divergence.

    `diverged` gives the reason of each divergence, `failed` the error of each (label, seed) without
    a run. `problem` is None, and `algorithms` is empty, if `diamond.load` cannot rebuild them.

    Examples:
        >>> problem = diamond.gallery.quadratic(agents=4, upper=3, lower=3, rows=20)
        >>> methods = {"D-SGD": diamond.dsgd(batch=4)}
        >>> found = diamond.compare(problem, diamond.network.ring(4), methods, rounds=2, seeds=2)
        >>> found.runs["D-SGD", 1].rounds
        2
    """

    problem: Problem | None
    network: Network
    algorithms: dict[str, Algorithm]
    runs: dict[tuple[str, int], Run]
    diverged: dict[tuple[str, int], str]
    wall_seconds: dict[tuple[str, int], float]
    rounds: int
    every: int
    stop: dict[str, float | str] = field(default_factory=dict)
    failed: dict[tuple[str, int], str] = field(default_factory=dict)

    def rows(self) -> list[TableRow]:
        """Return one row per algorithm: the mean over the seeds, and the deviation as `*_sd`.

        If runs failed, `failed` is their number.
        """
        seed_rows = average_over_seeds(
            [
                make_row(run_name(label, seed), self._about(label, seed), last_evaluation(run))
                for (label, seed), run in self.runs.items()
            ]
        )
        failed = Counter(label for label, _ in self.failed)
        by_label = {entry["algorithm"]: entry for entry in seed_rows}
        for label, count in failed.items():
            empty = {"algorithm": label, "network": self.network.title, "seeds": 0, "diverged": 0}
            entry = by_label.setdefault(label, empty)
            entry |= {"seeds": entry["seeds"] + count, "failed": count}
        labels = dict.fromkeys([*self.algorithms, *by_label])
        return [by_label[label] for label in labels if label in by_label]

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
        metric_names = (
            self.problem.metrics if self.problem else [*next(iter(self.runs.values())).history]
        )
        targets = stopping.check_stop(target or self.stop, metric_names, self.network.links)
        targets = stopping.without_budgets(targets)
        if not targets:
            raise ValueError('costs_to_target: give a measure to reach, as in {"metric": 1e-3}')
        return Table(self._cost(run_key, run, targets) for run_key, run in self.runs.items())

    def _cost(self, run_key: tuple[str, int], run: Run, target: Stop) -> TableRow:
        reaching = (entry for entry in history_lines(run) if stopping.stop_reason(target, entry))
        entry = next(reaching, None)  # the first evaluation that reaches a target
        columns = {"rounds": "round"} | {name: name for name in COST_COLUMNS if name in run.history}
        costs = {name: math.nan if entry is None else entry[key] for name, key in columns.items()}
        return {"algorithm": run_key[0], "seed": run_key[1], "reached": entry is not None} | costs

    def table(self) -> str:
        """Format the last evaluation of every algorithm as text."""
        return format_aligned(self._cells())

    def plot(self, path: str | Path | None = None, relative_to: str | None = None) -> "Figure":
        """Draw curves against rounds, samples, bytes and seconds; needs the extra `plot`.

        Args:
            path: File to write; its ending is .png, .pdf or .svg. None: no file.
            relative_to: Label of the algorithm that all curves are divided by.

        Returns:
            The figure, which a notebook shows.
        """
        from ..report.figures import convergence_figure, save_figure

        runs = [
            StoredRun(Path(), self._manifest(label, seed), history_lines(run))
            for (label, seed), run in self.runs.items()
        ]
        figure = convergence_figure(runs, relative_to)
        if path is not None:
            save_figure(figure, [Path(path)])
        return figure

    def save(self, folder: str | Path) -> Path:
        """Save all runs as a folder of run folders, as `diamond compare` does.

        Args:
            folder: Folder to create, for `diamond.load` and `diamond report`.
        """
        folder = Path(folder)
        names = make_unique(folder_name(run_name(label, seed)) for label, seed in self.runs)
        for name, ((label, seed), run) in zip(names, self.runs.items()):
            save_run(
                run, folder / name, self._manifest(label, seed), self.wall_seconds[label, seed]
            )
        return folder

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return format_html(self._cells())

    def _cells(self) -> list[list[str]]:
        rows = self.rows()
        metric_names = [*self.problem.metrics] if self.problem else []
        link_columns = [name for name in LINK_COLUMNS if any(name in row for row in rows)]
        is_present = lambda name: name == "algorithm" or any(name in row for row in rows)
        replacements = {} if is_present("upper_loss") else WITHOUT_UPPER_LOSS
        names = [
            replacements.get(name, name) for name in (*COLUMNS[:4], *metric_names, *COLUMNS[4:])
        ]
        present = [name for name in names if is_present(name)]
        columns = [*present, *link_columns]
        has_several_seeds = len({seed for _, seed in self.runs}) > 1

        def cell(row: TableRow, name: str) -> str:
            status = "diverged" if row["diverged"] else "failed"
            value, spread = row.get(name, status), row.get(f"{name}_sd", 0.0)
            if isinstance(value, str):
                return value
            scale = 1e6 if name == "bytes" else 1.0
            text = f"{value / scale:.4g}"
            return f"{text} ± {spread / scale:.1g}" if has_several_seeds and spread else text

        titles = ["MB" if name == "bytes" else name.replace("_", " ") for name in columns]
        titles[0] = f"{self.rounds} rounds"
        return [titles, *([cell(row, name) for name in columns] for row in rows)]

    def _about(self, label: str, seed: int) -> TableRow:
        """Return the part of a run's manifest that rows are made of."""
        network, status = {"name": self.network.title}, self.runs[label, seed].status
        algorithm = {"label": label}
        return {"algorithm": algorithm, "network": network, "seed": seed, "status": status}

    def _manifest(self, label: str, seed: int) -> TableRow:
        entries = make_manifest(
            self.runs[label, seed], run_name(label, seed), label, COMPARISON_NAME
        )
        return entries | {"stop": stop_to_json(self.stop)}


def run_name(label: str, seed: int) -> str:
    """Return the name of a run in rows, folders and the display."""
    return f"{label}-seed{seed}"


def last_evaluation(run: Run) -> dict[str, float]:
    """Return the last evaluation of a run."""
    return {name: np.asarray(values)[-1].item() for name, values in run.history.items()}
