"""Export of a run's solution for other programs: NPZ, safetensors, CSV."""

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import best_point, checkpoint
from .folder_reader import Stored

LEAF = re.compile(
    rf"(?P<of>\.state|{re.escape(best_point.PLACE)})\.(?P<level>[xy])(?!\w)(?P<leaf>.*)", re.S
)
STEPS = re.compile(r"\w+")


def export(run: Stored, kind: str, out: Path | None = None) -> list[Path]:
    """Export x, y and the best point of a run as files; return their paths.

    NPZ: `x`, `y`, `best/x`, `best/y`, or `x/w` and so on if they have several arrays, agents first,
    and `history/NAME`. safetensors: the same without the history. CSV, in a folder: x.csv and y.csv
    with one line per entry and one column per agent, and history.csv.
    """
    return KINDS[kind](run, out)


def arrays(run: Stored) -> dict[str, np.ndarray]:
    """Return x, y and the best point of the newest checkpoint by names such as "x/w/0"."""
    found = {}
    for name, leaf in checkpoint.newest(run.path / "checkpoint").arrays.items():
        if match := LEAF.fullmatch(name):
            first = [] if match["of"] == ".state" else ["best"]
            place = "/".join([*first, match["level"], *STEPS.findall(match["leaf"])])
            found[place] = leaf[None] if "site" in run.manifest else leaf
    return found


def _npz(run: Stored, out: Path | None) -> list[Path]:
    path = out or run.path / "answer.npz"
    columns = [name for name in run.last if name != "agents"]
    history = {f"history/{name}": np.array([e[name] for e in run.lines]) for name in columns}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        np.savez(stream, **arrays(run) | history)  # type: ignore[arg-type]
    return [path]


def _safetensors(run: Stored, out: Path | None) -> list[Path]:
    from safetensors.numpy import save_file

    path = out or run.path / "answer.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(leaf) for name, leaf in arrays(run).items()}, path)
    return [path]


def _csv(run: Stored, out: Path | None) -> list[Path]:
    folder = out or run.path / "answer"
    folder.mkdir(parents=True, exist_ok=True)
    found, answer = arrays(run), run.manifest.get("answer", {})
    names = {"x": answer["names"]} if answer.get("names") else {}
    for leaf, own in answer.get("y_names", {}).items():
        names["/".join(["y", *STEPS.findall(leaf)])] = own
    agents = columns(run.manifest, len(next(iter(found.values()))))
    measures = [name for name in run.last if name != "agents"]
    tables: dict[str, Any] = {
        "x": _level(found, "x", names, agents, answer.get("meaning", "")),
        "y": _level(found, "y", names, agents),
        "history": [measures, *([line[name] for name in measures] for line in run.lines)],
    }
    return [_table(folder / f"{name}.csv", rows) for name, rows in tables.items()]


def columns(manifest: Mapping[str, Any], agents: int) -> list[str]:
    """Return the names of the agents in the run: those of the sites, if sites have names."""
    if "site" in manifest:
        return [str(manifest["site"]["name"])]
    sites = manifest["network"].get("sites") or []
    return [str(name) for name in sites] or [f"agent {i}" for i in range(agents)]


def _level(
    found: dict[str, np.ndarray],
    level: str,
    names: dict[str, Any],
    agents: list[str],
    meaning: str = "",
) -> list[list[Any]]:
    """Make one line per entry with one column per agent; for the shared x, also the mean.

    `meaning`, if known, describes the numbers and is the same in all lines.
    """
    leaves = {n: a for n, a in found.items() if n == level or n.startswith(f"{level}/")}
    mean, kind = ["mean"] if level == "x" else [], ["quantity"] if meaning else []
    rows: list[list[Any]] = [["entry", *kind, *mean, *agents]]
    for name, leaf in leaves.items():
        of_leaf = names.get("x" if level == "x" else name)
        for place in np.ndindex(leaf.shape[1:]):
            values = leaf[(slice(None), *place)]
            own = [meaning] * bool(meaning) + ([float(values.mean())] if mean else [])
            rows.append([_entry(name, place, of_leaf), *own, *map(float, values)])
    return rows


def _entry(leaf: str, place: tuple[int, ...], names: Any) -> str:
    """Name an entry: "age", "age[1]", "x/w[0, 1]"; `names` is text or nested lists."""
    rest = list(place)
    while isinstance(names, list):
        names = names[rest.pop(0)]
    return f"{names or leaf}{rest}" if rest else names or leaf


def _table(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    return path


KINDS: dict[str, Callable[[Stored, Path | None], list[Path]]] = {
    "npz": _npz,
    "safetensors": _safetensors,
    "csv": _csv,
}
