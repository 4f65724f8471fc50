"""The four figures: their runs, tables, and pictures of mean curves with the range over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..records.plot import make_figure
from ..tuning.trial_cache import Trial, summarize_trial
from . import paper_case
from .paper_case import ExperimentScale, PaperCase
from .paper_methods import COLOURS, METHODS
from .paper_tuning import load_constants

EDGE_PROBABILITIES = (0.3, 0.5, 0.8)
PALETTE = [*COLOURS.values(), "#E69F00", "#56B4E9"]
LABELS = {
    "metric": "metric, eq. (11)",
    "upper_loss": "upper loss",
    "accuracy": "test accuracy",
    "test_loss": "test loss",
    "round": "round",
    "samples": "rows drawn by an agent",
    "seconds": "seconds (a run's share, if side by side)",
}


@dataclass(frozen=True)
class FigureLine:
    """One curve: a method on a case, over seeds."""

    label: str
    case: PaperCase
    method: str
    frozen: bool = False


TrialsByLine = dict[FigureLine, list[Trial]]


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
) -> TrialsByLine:
    """Run the trials of every line, one per seed."""
    trials: TrialsByLine = {}
    for line in figure_lines(figure):
        constants = load_constants(line.case, kind, line.method)
        settings = [(constants, seed) for seed in range(scale.seeds)]
        trials[line] = paper_case.run_trials(
            line.case, scale, line.method, settings, cache_folder, folder, on_trial, line.frozen
        )
    return trials


def summarize_lines(trials_by_line: TrialsByLine) -> list[dict[str, Any]]:
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


class PanelColumn(NamedTuple):
    """Panels in a column: the same lines, one quantity each."""

    title: str
    lines: list[FigureLine]
    along: str = "round"


def draw_figure(figure: str, trials: TrialsByLine, paths: Sequence[Path]) -> None:
    """Draw one column for every setting, against rounds."""
    titles = list(dict.fromkeys(_panel_title(figure, line.case) for line in trials))
    columns = [
        PanelColumn(title, [line for line in trials if _panel_title(figure, line.case) == title])
        for title in titles
    ]
    measures = ["accuracy", "test_loss", "metric"] if figure == "fig4" else ["metric", "upper_loss"]
    _draw_panels(columns, measures, trials, paths)


def draw_costs(trials: TrialsByLine, paths: Sequence[Path]) -> None:
    """Draw the first setting against rounds, samples and seconds."""
    first_case = next(iter(trials)).case
    lines = [line for line in trials if line.case == first_case]
    columns = [
        PanelColumn(_panel_title("", first_case), lines, along)
        for along in ("round", "samples", "seconds")
    ]
    _draw_panels(columns, ["accuracy", "test_loss"], trials, paths)


def _draw_panels(
    columns: list[PanelColumn], measures: list[str], trials: TrialsByLine, paths: Sequence[Path]
) -> None:
    size = (3.4 * len(columns), 2.9 * len(measures))
    figure = make_figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(measures), len(columns), squeeze=False)
    for i, column in enumerate(columns):
        for axis, key in zip(axes[:, i], measures):
            for colour, line in zip(PALETTE, column.lines):
                line_colour = COLOURS.get(line.label, colour)
                _draw_curve(
                    axis, trials[line], key, column.along, label=line.label, colour=line_colour
                )
            if key == "metric":
                axis.set_yscale("log")
            axis.set_xlabel(LABELS[column.along], fontsize=8)
            axis.set_ylabel(LABELS[key] if i == 0 else "", fontsize=8)
            axis.tick_params(labelsize=7)
            axis.grid(alpha=0.3)
        axes[0][i].set_title(column.title, fontsize=9)
        axes[0][i].legend(fontsize=7)
    for path in paths:
        figure.savefig(path, dpi=130)


def _panel_title(figure: str, case: PaperCase) -> str:
    title = f"{case.dataset}, m = {case.agents}, {case.partition}"
    return title if figure == "fig3" else f"{title}, p = {case.p}"


def _draw_curve(
    axis: Any, runs: list[Trial], key: str, along: str, *, label: str, colour: str
) -> None:
    histories = [run["history"] for run in runs if run["diverged"] is None]
    if not histories:
        first_round = min(run["diverged"] for run in runs)
        axis.plot([], [], color=colour, label=f"{label}: diverged (round {first_round})")
        return
    if len(histories) < len(runs):
        label = f"{label} ({len(runs) - len(histories)} of {len(runs)} seeds diverged)"
    positions = np.array([history[along] for history in histories]).mean(0)
    values = np.array([history[key] for history in histories])
    axis.plot(positions, values.mean(0), color=colour, label=label, lw=1.3)
    axis.fill_between(positions, values.min(0), values.max(0), color=colour, alpha=0.18, lw=0)
