"""Pictures of runs."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .folder_reader import StoredRun
from .plot_colors import OKABE_ITO

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {
    "upper_loss": r"upper loss $\ell(\bar x)$",
    "metric": "metric, eq. (11)",
    "stationarity": r"$\|\nabla \ell(\bar x)\|^2$",
    "consensus": r"$\Sigma_i \|x_i - \bar x\|^2$",
    "lower_error": r"$\Sigma_i \|y_i^* - y_i\|^2$",
    "local_loss": r"mean of $f_i(x_i, y_i)$",
    "x_direction": "norm of the sampled directions of x",
    "y_direction": "norm of the sampled directions of y",
}
LOSSES = ("upper_loss", "local_loss")


def make_figure(**options: Any) -> "Figure":
    """Make a figure of matplotlib that a notebook shows, also before pyplot is imported."""
    from matplotlib.figure import Figure  # pyplot takes longer to import

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            stream = BytesIO()
            self.savefig(stream, format="png", dpi=80)
            return stream.getvalue()

    return NotebookFigure(**options)


def plot_convergence(
    runs: Mapping[str, StoredRun], path: Path | None, title: str, along: str = "round"
) -> "Figure":
    """Draw losses, error terms and user metrics of `runs` against rounds or a cost."""
    first = next(iter(runs.values()))
    user_metrics = [
        name for name in first.last_evaluation["agents"] if name not in (*LABELS, "solver_error")
    ]
    omitted = "local_loss" if "upper_loss" in first.last_evaluation else ""
    measures = [name for name in LABELS if name in first.last_evaluation and name != omitted]
    panels = {name: LABELS.get(name, name) for name in (*measures, *user_metrics)}
    columns = 3
    figure = make_figure(figsize=(11, 6.4), layout="constrained")
    axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (name, label) in zip(axes.flat, panels.items()):
        for colour, (method, run) in zip(OKABE_ITO, runs.items()):
            is_zero = name in ("consensus", "x_direction", "y_direction")  # in round 0
            lines = run.lines[1:] if is_zero else run.lines
            points = [[line[key] for line in lines] for key in (along, name)]
            axis.plot(*points, color=colour, label=method)
        if name not in (*user_metrics, *LOSSES):
            axis.set_yscale("log")
            axis.minorticks_off()  # minor ticks take half of the drawing time
        axis.set_title(label, fontsize=10)
        axis.set_xlabel(along)
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=9)
    figure.suptitle(title, fontsize=11)
    if path is not None:
        figure.savefig(path, dpi=130)
    return figure
