"""Tables and pictures of a partition."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .dataset import DataError


def counts(parts: Sequence[ArrayLike], labels: ArrayLike) -> NDArray[np.int64]:
    """Count the labels of each agent, (agents, classes), the classes in ascending order."""
    _, codes = np.unique(np.asarray(labels), return_inverse=True)
    width = int(codes.max(initial=0)) + 1
    return np.stack([np.bincount(codes[np.asarray(part)], minlength=width) for part in parts])


def table(
    parts: Sequence[ArrayLike],
    labels: ArrayLike,
    classes: Sequence[str] | None = None,
    agents: Sequence[str] | None = None,
) -> str:
    """Format one line per agent: its rows, then the count of each label.

    `classes` and `agents` are their names.
    """
    numbers, names = counts(parts, labels), _label_names(labels, classes)
    rows_of_agents = [[int(row.sum()), *map(int, row)] for row in numbers]
    total = [int(numbers.sum()), *map(int, numbers.sum(0))]
    agent_names = [str(k) for k in range(len(parts))] if agents is None else list(agents)
    return columns(["rows", *names], [*agent_names, "all"], [*rows_of_agents, total])


def columns(head: Sequence[str], names: Sequence[str], rows: Sequence[Sequence[float]]) -> str:
    """Align numbers under their titles, one line per agent."""
    format_value = lambda value: f"{value:.4g}" if isinstance(value, float) else str(value)
    lines = [["agent", *head], *([name, *map(format_value, row)] for name, row in zip(names, rows))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def picture(
    parts: Sequence[ArrayLike],
    labels: ArrayLike,
    path: str | Path,
    classes: Sequence[str] | None = None,
    agents: Sequence[str] | None = None,
) -> Path:
    """Draw one bar per agent, its rows stacked by label; needs the extra `plot`.

    Args:
        parts: Index array of each agent.
        labels: Labels of the rows.
        path: File to write.
        classes: Names of the labels.
        agents: Names of the agents.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    numbers, names = counts(parts, labels), _label_names(labels, classes)
    bars = np.arange(len(numbers))
    size = (float(np.clip(1.8 + 0.45 * len(bars), 5, 12)), 3.6)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    base = np.zeros(len(bars))
    for k, name in enumerate(names):
        is_small = len(names) <= 10
        colour = colormaps["tab10"](k) if is_small else colormaps["turbo"](k / (len(names) - 1))
        axes.bar(bars, numbers[:, k], bottom=base, color=colour, label=name, width=0.8)
        base += numbers[:, k]
    axes.set(xlabel="agent", ylabel="rows", ylim=(0, 1.05 * base.max()))
    if agents is None:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=25, integer=True, min_n_ticks=1))
    else:
        axes.set_xticks(bars, list(agents), rotation=90 if len(bars) > 12 else 0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.02)
    if len(names) <= 20:  # a longer legend would exceed the picture
        handles, labels_shown = axes.get_legend_handles_labels()
        # Reversed, so that the legend reads in the order of the stack.
        figure.legend(
            handles[::-1],
            labels_shown[::-1],
            title="label",
            loc="outside right center",
            frameon=False,
        )
    figure.savefig(path, dpi=150)
    return Path(path)


def _label_names(labels: ArrayLike, classes: Sequence[str] | None) -> list[str]:
    values = np.unique(np.asarray(labels))
    if classes is None:
        return [str(value) for value in values]
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= len(classes):
        raise DataError(f"{len(classes)} class names do not cover the labels {values.tolist()}")
    return [classes[value] for value in values]
