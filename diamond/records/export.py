"""Export of a run's solution for other programs: NPZ, safetensors, CSV."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..data.preparation import FILE as PREPARATION
from ..data.preparation import read_preparation
from . import best_point, checkpoint_file
from .folder_reader import StoredRun, agent_columns
from .result_table import name_entry

SOLUTION_LEAF = re.compile(
    rf"(?P<of>\.state|{re.escape(best_point.PREFIX)})\.(?P<level>[xy])(?!\w)(?P<leaf>.*)", re.S
)
PATH_PARTS = re.compile(r"\w+")


def export_solution(run: StoredRun, kind: str, out: Path | None = None) -> list[Path]:
    """Export x and y of a run's best and last evaluation as files; return their paths.

    NPZ: "x" and "y" of the best evaluation, "last/x" and "last/y" of the last one, or "x/w" and so
    on if they have several arrays, agents first, and "history/NAME". Without a best evaluation, x
    and y are the last ones. safetensors: the same without the history. CSV, in a folder: x.csv and
    y.csv with one line per entry and one column per agent, history.csv, and, of a linear model on
    tables, coefficients.csv in their units. The preparation of the rows is the array or the
    metadata "preparation", or preparation.json in the folder.
    """
    return FORMATS[kind](run, out)


def solution_arrays(run: StoredRun) -> dict[str, np.ndarray]:
    """Return x and y of the newest checkpoint by names such as "x/w/0" and "last/x/w/0"."""
    best: dict[str, np.ndarray] = {}
    last: dict[str, np.ndarray] = {}
    for name, leaf in checkpoint_file.load_newest(run.path / "checkpoint").arrays.items():
        if match := SOLUTION_LEAF.fullmatch(name):
            key = "/".join([match["level"], *PATH_PARTS.findall(match["leaf"])])
            arrays = last if match["of"] == ".state" else best
            arrays[key] = leaf[None] if "site" in run.manifest else leaf
    if not best or "upper_loss" not in run.last_evaluation:
        return last
    return best | {f"last/{name}": leaf for name, leaf in last.items()}


def _npz(run: StoredRun, out: Path | None) -> list[Path]:
    path = out or run.path / "answer.npz"
    columns = [name for name in run.last_evaluation if name != "agents"]
    history = {f"history/{name}": np.array([e[name] for e in run.lines]) for name in columns}
    if preparation := _preparation(run):
        history["preparation"] = np.array(preparation)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        np.savez(stream, **solution_arrays(run) | history)  # type: ignore[arg-type]
    return [path]


def _safetensors(run: StoredRun, out: Path | None) -> list[Path]:
    from safetensors.numpy import save_file

    path = out or run.path / "answer.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.ascontiguousarray(leaf) for name, leaf in solution_arrays(run).items()}
    preparation = _preparation(run)
    save_file(arrays, path, {"preparation": preparation} if preparation else None)
    return [path]


def _csv(run: StoredRun, out: Path | None) -> list[Path]:
    folder = out or run.path / "answer"
    folder.mkdir(parents=True, exist_ok=True)
    arrays, answer = solution_arrays(run), run.manifest.get("answer", {})
    names = {"x": answer["names"]} if answer.get("names") else {}
    for leaf, entry_names in answer.get("y_names", {}).items():
        names["/".join(["y", *PATH_PARTS.findall(leaf)])] = entry_names
    agents = agent_columns(run.manifest, len(next(iter(arrays.values()))))
    measures = [name for name in run.last_evaluation if name != "agents"]
    coefficients = answer.get("coefficients", {}).get("values", {})
    tables: dict[str, Any] = {
        "x": _level_rows(arrays, "x", names, agents, meaning=answer.get("meaning", "")),
        "y": _level_rows(arrays, "y", names, agents),
        "history": [measures, *([line[name] for name in measures] for line in run.lines)],
    }
    if coefficients:
        rows = [[entry, *values] for entry, values in coefficients.items()]
        tables["coefficients"] = [["entry", *agents], *rows]
    paths = [_write_table(folder / f"{name}.csv", rows) for name, rows in tables.items()]
    if preparation := _preparation(run):
        paths.append(folder / PREPARATION)
        paths[-1].write_text(preparation, encoding="utf-8")
    return paths


def _preparation(run: StoredRun) -> str:
    """Return the preparation of the run's rows as JSON; empty if it has none."""
    path = run.path / PREPARATION
    return read_preparation(path).to_json() if path.is_file() else ""


def _level_rows(
    arrays: dict[str, np.ndarray],
    level: str,
    names: dict[str, Any],
    agents: list[str],
    *,
    meaning: str = "",
) -> list[list[Any]]:
    """Make one line per entry with one column per agent; for the shared x, also the mean.

    `meaning`, if known, describes the numbers and is the same in all lines.
    """
    leaves = {n: a for n, a in arrays.items() if n == level or n.startswith(f"{level}/")}
    mean, kind = ["mean"] if level == "x" else [], ["quantity"] if meaning else []
    rows: list[list[Any]] = [["entry", *kind, *mean, *agents]]
    for name, leaf in leaves.items():
        leaf_names = names.get("x" if level == "x" else name)
        for index in np.ndindex(leaf.shape[1:]):
            values = leaf[(slice(None), *index)]
            leading = [meaning] * bool(meaning) + ([float(values.mean())] if mean else [])
            rows.append([name_entry(name, index, leaf_names), *leading, *map(float, values)])
    return rows


def _write_table(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    return path


FORMATS: dict[str, Callable[[StoredRun, Path | None], list[Path]]] = {
    "npz": _npz,
    "safetensors": _safetensors,
    "csv": _csv,
}
