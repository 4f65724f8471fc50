"""Data of a report page as one JSON-able dictionary."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from ..records.folder_reader import StoredRun, open_runs
from ..records.result_table import solution_entries
from .graph_layout import positions, scaled
from .groups import flatten, group, varied
from .thinning import config, thin

AXES = {
    "round": "rounds",
    "samples": "samples per agent",
    "bytes": "bytes sent by all agents",
    "seconds": "seconds of computing",
}
ON_LINKS = {  # in addition, for networks with links
    "network_seconds": "seconds on the network's links",
    "joules": "joules of sending",
}
MEASURES = {
    "metric": "metric, eq. (11)",
    "upper_loss": "upper loss \u2113(x\u0304)",
    "stationarity": "stationarity \u2016\u2207\u2113(x\u0304)\u2016\u00b2",
    "consensus": "consensus error \u03a3\u1d62\u2016x\u1d62 \u2212 x\u0304\u2016\u00b2",
    "lower_error": "lower error \u03a3\u1d62\u2016y\u1d62* \u2212 y\u1d62\u2016\u00b2",
    "local_loss": "local loss, mean of f\u1d62(x\u1d62, y\u1d62)",
}
ALONE = {  # instead, for runs of one site each
    "local_loss": "local loss f\u1d62(x\u1d62, y\u1d62)",
    "lower_error": "lower error \u2016y\u1d62* \u2212 y\u1d62\u2016\u00b2",
    "disagreement": "disagreement \u2016x\u1d62 \u2212 mean of what it heard\u2016\u00b2",
}
DIAGNOSTICS = {
    "definition1": "metric, Definition 1",
    "curvature": "largest eigenvalue of g_yy",
    "solver_error": "error left in y*",
    "waited": "seconds waited for neighbours",
}
SPENT = {"gradients", "hvps", "jvps"}
ABOUT = (
    "name experiment status message command started finished resolved seed rounds every batch "
    "sampling messages compile_seconds wall_seconds digest"
).split()
MACHINE = "versions device platform precision".split()


def payload(folders: list[Path]) -> dict[str, Any]:
    """Collect the data of the runs below `folders`, thinned to fit a page."""
    runs = open_runs(folders)
    manifests = [run.manifest for run in runs]
    groups, membership = group(manifests)
    thinning = thin(runs, membership)
    networks, problems, machines = _Distinct(), _Distinct(), _Distinct()
    rows = [
        _run(run, thinning.step)
        | (_details(run, thinning.pause) if i in thinning.detailed else {"agents": None})
        | {
            "group": own,
            "network": networks.place(run.manifest["network"]),
            "problem": problems.place(run.manifest["problem"]),
            "machine": machines.place({key: run.manifest.get(key) for key in MACHINE}),
        }
        for i, (run, own) in enumerate(zip(runs, membership))
    ]
    return {
        "title": ", ".join(dict.fromkeys(str(m.get("experiment") or m["name"]) for m in manifests)),
        "axes": axes(runs) | ({"bytes": "bytes sent by the site"} if alone(runs) else {}),
        "measures": measures(runs),
        "groups": groups,
        "networks": [clean(n) | {"positions": _positions(n)} for n in networks],
        "problems": [clean(problem) for problem in problems],
        "machines": [clean(machine) for machine in machines],
        "swept": varied(manifests, "name"),
        "alone": alone(runs),
        "thinned": thinning.step,
        "runs": rows,
    }


def dumps(found: dict[str, Any]) -> str:
    """Serialize as compact strict JSON."""
    return json.dumps(found, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def measures(runs: list[StoredRun]) -> list[dict[str, str]]:
    """List the measures to draw: the paper's, the user's, and those that assess reliability."""
    keys = {key for run in runs for entry in run.lines for key in entry if key != "agents"}
    paper = ALONE if alone(runs) else MEASURES | {"disagreement": ALONE["disagreement"]}
    own = sorted(keys - {*AXES, *ON_LINKS, *paper, *DIAGNOSTICS, *SPENT})
    parts = {
        "error terms and losses": paper,
        "your metrics": {key: key for key in own},
        "diagnostics": DIAGNOSTICS,
    }
    return [
        {"key": key, "title": title, "part": part}
        for part, titles in parts.items()
        for key, title in titles.items()
        if key in keys
    ]


def axes(runs: list[StoredRun]) -> dict[str, str]:
    """Return the horizontal axes: the costs that all runs counted."""
    begun = [run.last for run in runs if run.lines]
    counted = [key for key in ON_LINKS if begun and all(key in last for last in begun)]
    return AXES | {key: ON_LINKS[key] for key in counted}


def alone(runs: list[StoredRun]) -> bool:
    """Return whether each run is that of one site."""
    return all("site" in run.manifest for run in runs)


def _positions(network: dict[str, Any]) -> list[list[float]]:
    """Return the positions of the agents: the real ones, if known."""
    if "places" in network:
        return scaled(network["places"])
    return positions(network["agents"], network["edges"])


def _run(run: StoredRun, step: int) -> dict[str, Any]:
    """Return the facts and curves of one run."""
    kept = _every(run.lines, step)
    keys = dict.fromkeys(key for entry in kept for key in entry if key != "agents")
    return {
        "id": hashlib.sha256(str(run.path.resolve()).encode()).hexdigest()[:12],
        **{key: clean(run.manifest.get(key)) for key in ABOUT},
        "algorithm": run.manifest["algorithm"]["name"],
        "options": clean(flatten(run.manifest["algorithm"].get("options") or {})),
        "history": {key: [number(entry.get(key)) for entry in kept] for key in keys},
    }


def _details(run: StoredRun, pause: int) -> dict[str, Any]:
    """Return the agents' own values of a run, and its configuration."""
    kept = _every(run.lines, pause)
    tables = [entry.get("agents") or {} for entry in kept]
    keys = dict.fromkeys(key for table in tables for key in table if key != "solver_error")
    return {
        "config": config(run),
        "answer": _answer(run),
        "costs": clean(run.manifest.get("costs")),
        "traffic": run.manifest.get("traffic") or [],
        "losses": run.manifest.get("losses") or [],
        "frames": [entry["round"] for entry in kept],
        "agents": {
            key: [[number(v, 4) for v in table.get(key) or []] for table in tables] for key in keys
        },
    }


def _answer(run: StoredRun) -> list[list[str]]:
    """Describe the solution: the best round, and x if it is small or has names."""
    found = run.manifest.get("answer") or {}
    best = found.get("best")
    rows = [["best round", f"{best['round']}, upper loss {best['upper_loss']:.4g}"]] if best else []
    if "meaning" in found:
        rows.append(["x is", found["meaning"]])
    return rows + [
        [name, "  ".join(f"{value:.4g}" for value in values)]
        for name, values in solution_entries(found)
    ]


def _every(entries: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    """Keep the first, every `step`-th and the last, so that runs keep equal rounds."""
    last = len(entries) - 1
    return [entry for i, entry in enumerate(entries) if i % step == 0 or i == last]


def number(value: Any, digits: int = 6) -> float | int | None:
    """Round a number to few characters; None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if isinstance(value, int) or (value.is_integer() and abs(value) < 2**53):
        return int(value)
    return float(f"{value:.{digits}g}")


def clean(value: Any) -> Any:
    """Convert to strict JSON: a number that is not finite becomes its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: clean(inner) for key, inner in value.items()}
    return [clean(inner) for inner in value] if isinstance(value, list) else value


class _Distinct(list[Any]):
    """List that stores equal items once."""

    def place(self, item: Any) -> int:
        if item not in self:
            self.append(item)
        return self.index(item)
