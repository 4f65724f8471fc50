"""The four figures: what each runs, its table, its picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..paper import COLOURS, METHODS
from . import trials
from .case import Case, Scale
from .trials import Trial
from .tune import constants

DEGREES = (0.3, 0.5, 0.8)


@dataclass(frozen=True)
class Line:
    """One curve: a method on a case, over seeds."""

    label: str
    case: Case
    method: str
    frozen: bool = False


def lines(figure: str) -> list[Line]:
    """What figure 1, 2, 3 or 4 shows."""
    if figure in ("fig1", "fig2"):
        dataset = "mnist" if figure == "fig1" else "cifar10"
        cases = [Case(dataset, m, kind) for m in (9, 15) for kind in ("label", "iid")]
        return [Line(method, case, method) for case in cases for method in METHODS]
    if figure == "fig3":
        cases = [Case("mnist", m, "label", p) for m in (9, 15) for p in DEGREES]
        return [Line(f"p = {c.p}, lam = {c.network().lam:.2f}", c, "DIAMOND") for c in cases]
    cases = [Case("a9a", 5, "iid", p) for p in DEGREES]
    moving = [Line(method, case, method) for case in cases for method in METHODS]
    return moving + [Line(f"{m}, x fixed", cases[0], m, True) for m in ("DIAMOND", "D-SGD")]


def run(
    figure: str,
    scale: Scale,
    kind: str,
    memory: Path,
    folder: Path | None,
    on_trial: Callable[[int], None],
) -> dict[Line, list[Trial]]:
    """Every line's trials, one a seed."""

    def of(line: Line) -> list[Trial]:
        chosen = constants(line.case, kind, line.method)
        settings = [(chosen, seed) for seed in range(scale.seeds)]
        given = line.case, scale, line.method, settings, memory, folder, on_trial, line.frozen
        return trials.run(*given)

    return {line: of(line) for line in lines(figure)}


def table(found: dict[Line, list[Trial]]) -> list[dict[str, Any]]:
    """One row a line: means over seeds, with the standard deviation between them."""
    rows = []
    for line, runs in found.items():
        scores = [trials.score(trial) for trial in runs]
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
        shown = ("upper_loss", "local_loss", "metric", "final_metric", "accuracy", "test_loss")
        for key in [*shown, "samples", "bytes", "curvature"]:
            if not failed and key in scores[0]:
                values = np.array([score[key] for score in scores])
                row[key] = values.mean()
                row[f"{key}_sd"] = values.std(ddof=1) if len(values) > 1 else 0.0
                if key == "upper_loss":
                    row["worst_loss"] = values.max()  # a seed that stopped learning shows here
        rows.append(row)
    return rows


def draw(figure: str, found: dict[Line, list[Trial]], paths: Sequence[Path]) -> None:
    """Mean curves with the range over seeds as a band, into every path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    cases = list(dict.fromkeys(_panel(figure, line.case) for line in found))
    shown = {"metric": "metric, eq. (11)", "upper_loss": "upper loss"}
    if figure == "fig4":
        shown = {"accuracy": "test accuracy", "test_loss": "test loss", "metric": shown["metric"]}
    size = (3.4 * len(cases), 2.9 * len(shown))
    picture, axes = plt.subplots(
        len(shown), len(cases), figsize=size, layout="constrained", squeeze=False
    )
    palette = [*COLOURS.values(), "#E69F00", "#56B4E9"]
    for column, case in enumerate(cases):
        here = [line for line in found if _panel(figure, line.case) == case]
        for row, (key, label) in enumerate(shown.items()):
            axis = axes[row][column]
            for colour, line in zip(palette, here):
                _curve(axis, found[line], key, line.label, COLOURS.get(line.label, colour))
            if key == "metric":
                axis.set_yscale("log")
            axis.set_title(case if row == 0 else "", fontsize=9)
            axis.set_xlabel("round", fontsize=8)
            axis.set_ylabel(label if column == 0 else "", fontsize=8)
            axis.tick_params(labelsize=7)
            axis.grid(alpha=0.3)
        axes[0][column].legend(fontsize=7)
    for path in paths:
        picture.savefig(path, dpi=130)
    plt.close(picture)


def _panel(figure: str, case: Case) -> str:
    place = f"{case.dataset}, m = {case.agents}, {case.partition}"
    return place if figure == "fig3" else f"{place}, p = {case.p}"


def _curve(axis: Any, runs: list[Trial], key: str, label: str, colour: str) -> None:
    whole = [run["history"] for run in runs if run["diverged"] is None]
    if not whole:
        first = min(run["diverged"] for run in runs)
        axis.plot([], [], color=colour, label=f"{label}: diverged (round {first})")
        return
    if len(whole) < len(runs):
        label = f"{label} ({len(runs) - len(whole)} of {len(runs)} seeds diverged)"
    rounds = np.array(whole[0]["round"])
    values = np.array([history[key] for history in whole])
    axis.plot(rounds, values.mean(0), color=colour, label=label, lw=1.3)
    axis.fill_between(rounds, values.min(0), values.max(0), color=colour, alpha=0.18, lw=0)
