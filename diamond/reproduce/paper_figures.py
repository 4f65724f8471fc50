"""The four figures: their runs and tables."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..tuning.trial_cache import Trial, summarize_trial
from . import paper_case
from .paper_case import ExperimentScale, PaperCase
from .paper_methods import METHODS
from .paper_tuning import load_constants

EDGE_PROBABILITIES = (0.3, 0.5, 0.8)


@dataclass(frozen=True)
class FigureLine:
    """One curve: a method on a case, over seeds."""

    label: str
    case: PaperCase
    method: str
    frozen: bool = False


def figure_lines(figure: str) -> list[FigureLine]:
    """Return the lines of figure 1, 2, 3 or 4."""
    if figure in ("fig1", "fig2"):
        dataset, skewed = ("mnist", "label") if figure == "fig1" else ("cifar10", "label2")
        cases = [PaperCase(dataset, m, kind) for m in (9, 15) for kind in (skewed, "iid")]
        return [FigureLine(method, case, method) for case in cases for method in METHODS]
    if figure == "fig3":
        cases = [PaperCase("mnist", m, "label", p) for m in (9, 15) for p in EDGE_PROBABILITIES]
        return [FigureLine(f"p = {c.p}, lam = {c.network().lam:.2f}", c, "DIAMOND") for c in cases]
    cases = [PaperCase("a9a", 5, "iid", p) for p in EDGE_PROBABILITIES]
    moving = [FigureLine(method, case, method) for case in cases for method in METHODS]
    return moving + [FigureLine(f"{m}, x fixed", cases[0], m, True) for m in ("DIAMOND", "D-SGD")]


def run_figure(
    figure: str,
    scale: ExperimentScale,
    kind: str,
    cache_folder: Path,
    *,
    folder: Path | None,
    on_trial: Callable[[int], None],
) -> dict[FigureLine, list[Trial]]:
    """Run the trials of every line, one per seed."""

    def run_line(line: FigureLine) -> list[Trial]:
        constants = load_constants(line.case, kind, line.method)
        settings = [(constants, seed) for seed in range(scale.seeds)]
        return paper_case.run_trials(
            line.case, scale, line.method, settings, cache_folder, folder, on_trial, line.frozen
        )

    return {line: run_line(line) for line in figure_lines(figure)}


def summarize_lines(trials_by_line: dict[FigureLine, list[Trial]]) -> list[dict[str, Any]]:
    """Return one row per line: means over seeds, with the standard deviation."""
    rows = []
    for line, runs in trials_by_line.items():
        scores = [summarize_trial(trial) for trial in runs]
        failed = [trial["diverged"] for trial in runs if trial["diverged"] is not None]
        row: dict[str, Any] = {
            "case": line.case.name,
            "line": line.label,
            "lam": line.case.network().lam,
            "constants": runs[0]["constants"],
            "seeds": len(runs),
            "diverged": f"{len(failed)} (round {min(failed)})" if failed else "0",
            "device": runs[0]["device"],
            "wall": sum(trial["wall"] for trial in runs),
        }
        measures = ("upper_loss", "local_loss", "metric", "final_metric", "accuracy", "test_loss")
        for key in [*measures, "samples", "bytes", "curvature"]:
            if not failed and key in scores[0]:
                values = np.array([score[key] for score in scores])
                row[key] = values.mean()
                row[f"{key}_sd"] = values.std(ddof=1) if len(values) > 1 else 0.0
                if key == "upper_loss":
                    row["worst_loss"] = values.max()  # reveals a seed that stopped learning
        rows.append(row)
    return rows
