"""Figures for a paper: convergence as PNG, PDF or SVG, from run folders."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..core.suggestions import did_you_mean
from ..records.folder_reader import StoredRun, open_runs
from ..records.plot import make_figure
from .groups import group_runs
from .report_payload import MEASURES, list_axes, round_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT_COLUMNS = ("agents", "round", "samples", "gradients", "hvps", "jvps", "bytes", "seconds")
PREFERRED_MEASURES = ("upper_loss", "metric", "local_loss")  # the first two measured ones are shown
CUTOFF_FACTORS = {"metric": 1e4, "upper_loss": 2.0}  # times the start: nothing is drawn above
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3))}
Curve = dict[str, np.ndarray]
Format = Literal["png", "pdf", "svg"]
STRIPPED_METADATA: dict[str, dict[str, None]] = {  # removes metadata, for reproducible files
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None},
}
# Publishers reject the default fonts of PDF files.
FONT_SETTINGS: dict[Any, Any] = {"pdf.fonttype": 42, "svg.hashsalt": "diamond"}


def draw_convergence(
    folders: Sequence[Path],
    out: Path,
    relative_to: str | None = None,
    formats: Sequence[Format] = ("png", "pdf"),
) -> list[Path]:
    """Draw the upper loss and the metric of all runs against rounds and costs.

    Seeds are drawn as their median and range.

    Args:
        folders: Folders of runs or of comparisons.
        out: Folder of the figures, convergence.png, .pdf, ...
        relative_to: Name of the curve that all curves are divided by.
        formats: "png", "pdf" or "svg".
    """
    name = "convergence" if relative_to is None else "convergence-relative"
    paths = [Path(out) / f"{name}.{ending}" for ending in dict.fromkeys(formats)]
    save_figure(convergence_figure(open_runs(folders), relative_to), paths)
    return paths


def convergence_figure(runs: list[StoredRun], relative_to: str | None = None) -> "Figure":
    """Draw the runs as `draw_convergence` does."""
    groups, membership = group_runs([run.manifest for run in runs])
    titles = [group["title"] for group in groups]
    if relative_to is not None and relative_to not in titles:
        raise ValueError(f"no curve {relative_to!r}; {did_you_mean(relative_to, titles)}")
    entries = [
        [run.lines for run, group_index in zip(runs, membership) if group_index == i]
        for i in range(len(groups))
    ]
    axis_titles = list_axes(runs)
    curves = {
        (measure, axis): [aggregate_seeds(seeds, measure, axis) for seeds in entries]
        for measure in _select_measures(runs)
        for axis in axis_titles
    }
    base = None if relative_to is None else titles.index(relative_to)
    return _make_figure(groups, curves, axis_titles, base)


def _select_measures(runs: Sequence[Any]) -> list[str]:
    """Return the measures to show: the first two that some run has."""
    present = {name for run in runs for name in run.lines[-1]} if runs else set()
    return [name for name in PREFERRED_MEASURES if name in present][:2] or [
        min(present - {*COUNT_COLUMNS})
    ]


def aggregate_seeds(seeds: list[list[dict[str, Any]]], measure: str, axis: str) -> Curve:
    """Aggregate seeds by round: their position on the axis, median and range."""
    rounds: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for entry in (entry for entries in seeds for entry in entries):
        x, y = round_number(entry.get(axis), 17), round_number(entry.get(measure), 17)
        if x is not None and y is not None:
            rounds[entry["round"]].append((x, y))
    points = [np.array(rounds[t], float).T for t in sorted(rounds)]
    reduced = [(np.median(x), np.median(y), y.min(), y.max()) for x, y in points]
    return dict(zip(("x", "y", "low", "high"), np.array(reduced).reshape(-1, 4).T))


def divide_curves(curve: Curve, base: Curve) -> Curve:
    """Divide a curve by another one over their common range."""
    unit = np.interp(curve["x"], base["x"], base["y"], left=np.nan, right=np.nan)
    return {"x": curve["x"]} | {key: curve[key] / unit for key in ("y", "low", "high")}


def _make_figure(
    groups: list[dict[str, Any]],
    curves: dict[Any, list[Curve]],
    titles: dict[str, str],
    base: int | None,
) -> "Figure":
    measures = list(dict.fromkeys(measure for measure, _ in curves))
    figure = make_figure(figsize=(3.1 * len(titles), 2.7 * len(measures)), layout="constrained")
    panels = figure.subplots(len(measures), len(titles), sharey="row", squeeze=False)
    for (measure, axis), panel in zip(curves, panels.flat):
        panel_curves = curves[measure, axis]
        if base is None:
            panel_curves = _cut_outliers(
                panel_curves, CUTOFF_FACTORS.get(measure, CUTOFF_FACTORS["metric"])
            )
        else:
            panel_curves = [divide_curves(curve, panel_curves[base]) for curve in panel_curves]
        _draw_panel(panel, groups, panel_curves, measure, axis=axis)
    for panel, title in zip(panels[-1], titles.values()):
        panel.set_xlabel(title, fontsize=9)
    for panel, measure in zip(panels[:, 0], measures):
        suffix = "" if base is None else f"\nrelative to {groups[base]['title']}"
        panel.set_ylabel(MEASURES[measure].replace("\u2113(x\u0304)", r"$\ell(\bar{x})$") + suffix)
    handles = panels[0, 0].get_lines()
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)))
    return figure


def _draw_panel(
    panel: Any, groups: list[dict[str, Any]], curves: list[Curve], measure: str, *, axis: str
) -> None:
    from matplotlib.ticker import EngFormatter

    for group, curve in zip(groups, curves):
        style = {"color": group["colour"], "linestyle": DASHES[group["dash"]], "linewidth": 1.6}
        panel.plot(curve["x"], curve["y"], label=group["title"].replace("$", r"\$"), **style)
        band = {"color": group["colour"], "alpha": 0.18, "linewidth": 0}
        panel.fill_between(curve["x"], curve["low"], curve["high"], **band)
    if measure == "metric":
        panel.set_yscale("log")
    if axis in ("samples", "bytes"):
        panel.xaxis.set_major_formatter(EngFormatter("B" if axis == "bytes" else "", sep=""))
    panel.grid(alpha=0.25)
    panel.tick_params(labelsize=8)


def _cut_outliers(curves: list[Curve], factor: float) -> list[Curve]:
    """Cut values beyond `factor` times the start, since one bad run would hide the others."""
    start = max((abs(float(curve["y"][0])) for curve in curves if len(curve["y"])), default=0.0)
    below = lambda values: np.where(values <= factor * start, values, np.nan)
    return [{k: v if k == "x" else below(v) for k, v in curve.items()} for curve in curves]


def save_figure(figure: "Figure", paths: Sequence[Path]) -> None:
    """Write a figure to these files; each ending defines the format."""
    from matplotlib import rc_context

    if unknown_formats := {path.suffix[1:] for path in paths} - {*STRIPPED_METADATA}:
        endings = ", ".join(f".{ending}" for ending in STRIPPED_METADATA)
        raise ValueError(
            f"no figure of the kind {min(unknown_formats)!r}; name a file that ends in {endings}"
        )
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context(FONT_SETTINGS):
            figure.savefig(path, dpi=160, metadata=STRIPPED_METADATA[path.suffix[1:]])
