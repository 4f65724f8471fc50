"""Pictures of the four figures: mean curves over seeds, with the range as a band."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .paper_case import Case
from .paper_figures import Line
from .paper_methods import COLOURS
from .paper_trials import Trial

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
Found = dict[Line, list[Trial]]


class Column(NamedTuple):
    """Panels in a column: the same lines, one quantity each."""

    title: str
    lines: list[Line]
    along: str = "round"


def draw(figure: str, found: Found, paths: Sequence[Path]) -> None:
    """Draw one column for every setting, against rounds."""
    titles = list(dict.fromkeys(_title(figure, line.case) for line in found))
    columns = [Column(t, [x for x in found if _title(figure, x.case) == t]) for t in titles]
    shown = ["accuracy", "test_loss", "metric"] if figure == "fig4" else ["metric", "upper_loss"]
    _picture(columns, shown, found, paths)


def costs(found: Found, paths: Sequence[Path]) -> None:
    """Draw the first setting against rounds, samples and seconds."""
    first = next(iter(found)).case
    lines = [line for line in found if line.case == first]
    columns = [Column(_title("", first), lines, along) for along in ("round", "samples", "seconds")]
    _picture(columns, ["accuracy", "test_loss"], found, paths)


def _picture(columns: list[Column], shown: list[str], found: Found, paths: Sequence[Path]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    size = (3.4 * len(columns), 2.9 * len(shown))
    picture, axes = plt.subplots(
        len(shown), len(columns), figsize=size, layout="constrained", squeeze=False
    )
    for i, column in enumerate(columns):
        for axis, key in zip(axes[:, i], shown):
            for colour, line in zip(PALETTE, column.lines):
                chosen = COLOURS.get(line.label, colour)
                _curve(axis, found[line], key, column.along, line.label, chosen)
            if key == "metric":
                axis.set_yscale("log")
            axis.set_xlabel(LABELS[column.along], fontsize=8)
            axis.set_ylabel(LABELS[key] if i == 0 else "", fontsize=8)
            axis.tick_params(labelsize=7)
            axis.grid(alpha=0.3)
        axes[0][i].set_title(column.title, fontsize=9)
        axes[0][i].legend(fontsize=7)
    for path in paths:
        picture.savefig(path, dpi=130)
    plt.close(picture)


def _title(figure: str, case: Case) -> str:
    place = f"{case.dataset}, m = {case.agents}, {case.partition}"
    return place if figure == "fig3" else f"{place}, p = {case.p}"


def _curve(axis: Any, runs: list[Trial], key: str, along: str, label: str, colour: str) -> None:
    whole = [run["history"] for run in runs if run["diverged"] is None]
    if not whole:
        first = min(run["diverged"] for run in runs)
        axis.plot([], [], color=colour, label=f"{label}: diverged (round {first})")
        return
    if len(whole) < len(runs):
        label = f"{label} ({len(runs) - len(whole)} of {len(runs)} seeds diverged)"
    place = np.array([history[along] for history in whole]).mean(0)
    values = np.array([history[key] for history in whole])
    axis.plot(place, values.mean(0), color=colour, label=label, lw=1.3)
    axis.fill_between(place, values.min(0), values.max(0), color=colour, alpha=0.18, lw=0)
