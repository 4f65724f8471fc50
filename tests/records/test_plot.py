"""The picture of runs: each panel shows the measure of its title, against what was asked."""

from pathlib import Path

import numpy as np
import pytest
import saved_figures

from diamond.records.folder_reader import StoredRun
from diamond.records.plot import LABELS, plot_convergence

PANELS = {n: LABELS[n] for n in LABELS if n not in ("local_loss", "x_direction", "y_direction")}
pytestmark = pytest.mark.quick
COSTS = ("round", "samples", "bytes", "seconds")


def entry(run, k):
    """Evaluation k of a run: every number is another."""
    per_agent = {"accuracy": [0.1 * k] * 2, "upper_loss": [1.0, 2.0]}
    named = {name: run + 10.0 * i + k for i, name in enumerate((*PANELS, "accuracy"), 1)}
    return {"agents": per_agent} | named | {name: i + 100.0 * k for i, name in enumerate(COSTS)}


@pytest.mark.parametrize("along", COSTS)
def test_panels_show_what_they_say(monkeypatch, along):
    figures = saved_figures.record_figures(monkeypatch)
    runs = {f"run {r}": StoredRun(Path(), {}, [entry(r, k) for k in range(4)]) for r in (1, 2)}
    plot_convergence(runs, Path("run.png"), "two runs", along)
    axes = [axis for axis in figures[0].axes if axis.axison]
    titles = {label: name for name, label in PANELS.items()} | {"accuracy": "accuracy"}
    assert {axis.get_title() for axis in axes} == {*titles}
    for axis in axes:
        name, shown = titles[axis.get_title()], saved_figures.plotted_lines(axis)
        assert axis.get_xlabel() == along and [*shown] == [*runs]
        for label, run in runs.items():
            expected = [[line[along], line[name]] for line in run.lines]
            expected = expected[1:] if name == "consensus" else expected  # 0 at the start
            np.testing.assert_array_equal(shown[label].T, expected)
        assert axis.get_yscale() == ("linear" if name in ("upper_loss", "accuracy") else "log")
