"""Pictures of the four figures: mean curves over seeds, with the range as a band."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..tuning.trial_cache import Trial
from .paper_case import PaperCase
from .paper_figures import FigureLine
from .paper_methods import COLOURS

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
TrialsByLine = dict[FigureLine, list[Trial]]


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
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    size = (3.4 * len(columns), 2.9 * len(measures))
    figure, axes = plt.subplots(
        len(measures), len(columns), figsize=size, layout="constrained", squeeze=False
    )
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
    plt.close(figure)


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
