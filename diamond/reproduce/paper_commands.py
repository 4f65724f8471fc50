"""Implementation of `diamond reproduce` and of `diamond tune` for the paper's cases."""

import json
import time
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .. import theory
from . import paper_figures
from .paper_case import BATCH, TERMS, ExperimentScale, PaperCase
from .paper_methods import METHODS
from .paper_tuning import SEEDS, list_settings, tune_case

CASES = {
    case.name: case
    for case in [
        *(PaperCase("mnist", m, kind) for m in (9, 15) for kind in ("label", "iid")),
        *(PaperCase("cifar10", m, kind) for m in (9, 15) for kind in ("label2", "iid")),
        PaperCase("a9a", 5, "iid"),
    ]
}
FEATURES = {"mnist": 784, "cifar10": 3072, "a9a": 123}


def reproduce(
    figure: str, scale: ExperimentScale, kind: str, out: Path, folder: Path | None, console: Console
) -> dict[str, Any]:
    """Reproduce one figure: numbers (JSON), a table (Markdown), PNG and PDF in `out`/`figure`.

    Returns the table and the paths of the files.
    """
    figure_folder = out / figure
    figure_folder.mkdir(parents=True, exist_ok=True)
    lines = paper_figures.figure_lines(figure)
    console.print(
        f"{figure}, {scale.name} scale, {kind} constants: {len(lines)} lines x {scale.seeds} "
        f"seeds x {scale.rounds} rounds on {jax.devices()[0].device_kind}; about "
        f"{_estimate_minutes([line.case for line in lines], scale):.0f} min. After an "
        f"interruption, the same command continues from the trials in {out / 'trials'}",
    )
    with Progress(console=console) as bar:
        task = bar.add_task(figure, total=len(lines) * scale.seeds)
        advance = lambda n: bar.advance(task, n)
        trials = paper_figures.run_figure(
            figure, scale, kind, out / "trials", folder=folder, on_trial=advance
        )
    paths = write_figure_files(figure, kind, trials, figure_folder)
    rows = paper_figures.summarize_lines(trials)
    console.print(
        _make_table(rows, f"{figure}: means over {scale.seeds} seeds +- standard deviation")
    )
    console.print(f"{', '.join(map(str, paths))}")
    names = {"figure": figure, "scale": scale.name, "constants": kind}
    return names | {"table": rows, "files": [str(path) for path in paths]}


def write_figure_files(
    figure: str,
    kind: str,
    trials_by_line: paper_figures.TrialsByLine,
    folder: Path,
) -> list[Path]:
    """Write figure, table and all numbers into `folder`."""
    rows = paper_figures.summarize_lines(trials_by_line)
    paths = [folder / f"{figure}-{kind}.{ending}" for ending in ("png", "pdf")]
    paper_figures.draw_figure(figure, trials_by_line, paths)
    if figure == "fig4":
        extra = [folder / f"{figure}-{kind}-costs.{ending}" for ending in ("png", "pdf")]
        paper_figures.draw_costs(trials_by_line, extra)
        paths += extra
    trials = [
        {"label": line.label, "frozen": line.frozen} | trial
        for line, runs in trials_by_line.items()
        for trial in runs
    ]
    content = {"figure": figure, "constants": kind, "table": rows, "trials": trials}
    numbers, table = (folder / f"{figure}-{kind}.{ending}" for ending in ("json", "md"))
    numbers.write_text(json.dumps(content))
    text = format_markdown(rows)
    if figure in ("fig1", "fig2") and (paces := convergence_speed(trials_by_line)):
        text += "\n" + format_markdown(paces)
    table.write_text(text)
    return [*paths, table, numbers]


def tune_cases(
    names: list[str],
    scale: ExperimentScale,
    out: Path,
    file: Path,
    *,
    folder: Path | None,
    console: Console,
) -> dict[str, dict[str, Any]]:
    """Tune every named case; write all trials and the best constants to `file`; return them."""
    results = json.loads(file.read_text()) if file.exists() else {}
    for name in names:
        case = CASES[name]
        count = sum(len(list_settings(case, method)) for method in METHODS) * len(SEEDS)
        console.print(f"tuning {name}: {count} trials of {scale.rounds} rounds")
        start = time.perf_counter()
        with Progress(console=console) as bar:
            task = bar.add_task(name, total=count)
            advance = lambda n, task=task: bar.advance(task, n)
            tuned = tune_case(case, scale, out / "trials", folder, on_trial=advance)
        command = f"diamond tune {name} --scale {scale.name}"
        device, seconds = jax.devices()[0].device_kind, time.perf_counter() - start
        results[name] = {"command": command, "device": device, "seconds": round(seconds, 1)} | tuned
        file.write_text(format_constants(results))
        for method, constants in tuned["tuned"].items():
            console.print(f"  {method:8} c_alpha, c_beta, c_eta = {constants}")
    return {name: results[name] for name in names}


def format_constants(constants: dict[str, dict[str, Any]]) -> str:
    """Format the file of constants as JSON, one trial per line."""
    cases = []
    for name, case in constants.items():
        fields = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in case.items() if k != "trials"]
        rows = ",\n".join(f"   {json.dumps(row)}" for row in case["trials"])
        cases.append(
            f" {json.dumps(name)}: {{\n" + ",\n".join([*fields, f'  "trials": [\n{rows}\n  ]\n }}'])
        )
    return "{\n" + ",\n".join(cases) + "\n}\n"


def convergence_speed(
    trials_by_line: paper_figures.TrialsByLine,
) -> list[dict[str, Any]]:
    """Return the slope of the average metric, and rounds and samples to several epsilon."""
    rows = []
    for line, runs in trials_by_line.items():
        histories = [run["history"] for run in runs if run["diverged"] is None]
        if not histories:
            continue
        slope = theory.slope(histories, histories[0]["round"][-1] // 10)
        row: dict[str, Any] = {
            "case": line.case.name,
            "line": line.label,
            "slope": f"{slope.value:.2f} [{slope.low:.2f}, {slope.high:.2f}]",
        }
        for epsilon in (0.1, 0.03, 0.01, 0.003):
            for along in ("round", "samples"):
                costs = [theory.reached(history, epsilon, along) for history in histories]
                mean = sum(costs) / len(costs)
                row[f"{along}s to {epsilon}".replace("ss", "s")] = (
                    f"{mean:,.0f}" if mean < float("inf") else "-"
                )
        rows.append(row)
    return rows


def format_markdown(rows: list[dict[str, Any]]) -> str:
    """Format rows as a Markdown table; missing values, after divergence, stay empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row if not key.endswith("_sd")))
    cell = lambda row, key: f"{_format_number(row.get(key, ''))}{_format_deviation(row, key)}"
    lines = [columns, ["---"] * len(columns), *([cell(row, k) for k in columns] for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _make_table(rows: list[dict[str, Any]], title: str) -> Table:
    columns = ["case", "line", "upper_loss", "metric", "accuracy", "diverged", "wall"]
    table = Table(title=title)
    for key in columns:
        table.add_column(key, justify="left" if key in ("case", "line") else "right")
    for row in rows:
        table.add_row(
            *(f"{_format_number(row.get(k, ''))}{_format_deviation(row, k)}" for k in columns)
        )
    return table


def _format_number(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_format_number(v) for v in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _format_deviation(row: dict[str, Any], key: str) -> str:
    return f" +- {row[f'{key}_sd']:.2g}" if f"{key}_sd" in row else ""


def _estimate_minutes(cases: list[PaperCase], scale: ExperimentScale) -> float:
    """Estimate the duration in minutes.

    On a CPU, the estimate uses the matrix products of the rounds and the measured speed of
    products; an accelerator spends its time on launches and compilation instead.
    """
    if jax.default_backend() != "cpu":
        return (15 * len(cases) * scale.rounds / 2000 + 45 * len(set(cases))) / 60
    size = 512
    a = jax.numpy.ones((size, size))
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(a))
    start = time.perf_counter()
    jax.block_until_ready([product(a) for _ in range(8)])
    peak = 8 * 2 * size**3 / (time.perf_counter() - start)
    # Per agent and round, on average: 2 points, 14 batches (half the chain), 3 passes.
    work = sum(2 * BATCH * FEATURES[c.dataset] * 20 * c.agents * 3 * (TERMS + 4) for c in cases)
    efficiency = 1 / 3  # fraction of the speed of larger products
    return (work * scale.rounds * scale.seeds / (efficiency * peak) + 20 * len(set(cases))) / 60
