"""Figures of matplotlib, looked at instead of written."""

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib.figure import Figure


def record_figures(monkeypatch):
    """The figures that will be saved from now on, in their order; nothing is written."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *arguments, **options: figures.append(self))
    return figures


def plotted_lines(axis):
    """What an axis shows: {label: (x, y)}."""
    return {line.get_label(): np.array(line.get_data(), float) for line in axis.get_lines()}
