"""Data of a report page as one JSON-able dictionary."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from ..records.folder_reader import StoredRun, agent_columns, open_runs
from ..records.run_summary import model_entries, summarize_run
from .graph_layout import layout_agents, scale_positions
from .groups import flatten_options, group_runs, varying_options
from .thinning import choose_thinning, read_config

AXES = {
    "round": "rounds",
    "samples": "samples per agent",
    "bytes": "bytes sent by all agents",
    "seconds": "seconds of computing",
}
LINK_AXES = {  # in addition, for networks with links
    "network_seconds": "seconds on the network's links",
    "joules": "joules of sending",
}
MEASURES = {
    "upper_loss": "upper loss \u2113(x\u0304)",
    "metric": "metric, eq. (11)",
    "stationarity": "stationarity \u2016\u2207\u2113(x\u0304)\u2016\u00b2",
    "consensus": "consensus error \u03a3\u1d62\u2016x\u1d62 \u2212 x\u0304\u2016\u00b2",
    "lower_error": "lower error \u03a3\u1d62\u2016y\u1d62* \u2212 y\u1d62\u2016\u00b2",
    "local_loss": "local loss, mean of f\u1d62(x\u1d62, y\u1d62)",
}
SITE_MEASURES = {  # instead, for runs of one site each
    "local_loss": "local loss f\u1d62(x\u1d62, y\u1d62)",
    "lower_error": "lower error \u2016y\u1d62* \u2212 y\u1d62\u2016\u00b2",
    "disagreement": "disagreement \u2016x\u1d62 \u2212 mean of what it heard\u2016\u00b2",
}
DIAGNOSTICS = {
    "definition1": "metric, Definition 1",
    "curvature": "largest eigenvalue of g_yy",
    "solver_error": "error left in y*",
    "waited": "seconds waited for neighbours",
    "epsilon": "privacy spent, epsilon",
}
COST_KEYS = {"gradients", "hvps", "jvps"}
MANIFEST_KEYS = (
    "name experiment status message command started finished resolved seed rounds every batch "
    "sampling messages compile_seconds wall_seconds digest"
).split()
MACHINE_KEYS = "versions device platform precision".split()


def collect_report_data(folders: list[Path]) -> dict[str, Any]:
    """Collect the data of the runs below `folders`, thinned to fit a page."""
    runs = open_runs(folders)
    manifests = [run.manifest for run in runs]
    groups, membership = group_runs(manifests)
    thinning = choose_thinning(runs, membership)
    networks, problems, machines = _DistinctItems(), _DistinctItems(), _DistinctItems()
    rows = [
        _describe_run(run, thinning.step)
        | (
            _describe_details(run, thinning.agent_step)
            if i in thinning.detailed_runs
            else {"agents": None}
        )
        | {
            "group": group_index,
            "network": networks.index_of(run.manifest["network"]),
            "problem": problems.index_of(run.manifest["problem"]),
            "machine": machines.index_of({key: run.manifest.get(key) for key in MACHINE_KEYS}),
        }
        for i, (run, group_index) in enumerate(zip(runs, membership))
    ]
    return {
        "title": ", ".join(dict.fromkeys(str(m.get("experiment") or m["name"]) for m in manifests)),
        "axes": list_axes(runs)
        | ({"bytes": "bytes sent by the site"} if are_single_sites(runs) else {}),
        "measures": list_measures(runs),
        "groups": groups,
        "networks": [to_strict_json(n) | {"positions": _agent_positions(n)} for n in networks],
        "problems": [to_strict_json(problem) for problem in problems],
        "machines": [to_strict_json(machine) for machine in machines],
        "swept": varying_options(manifests, "name"),
        "alone": are_single_sites(runs),
        "thinned": thinning.step,
        "runs": rows,
    }


def dump_compact(data: dict[str, Any]) -> str:
    """Serialize as compact strict JSON."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def list_measures(runs: list[StoredRun]) -> list[dict[str, str]]:
    """List the measures to draw: the paper's, the user's, and those that assess reliability."""
    keys = {key for run in runs for entry in run.lines for key in entry if key != "agents"}
    paper = (
        SITE_MEASURES
        if are_single_sites(runs)
        else MEASURES | {"disagreement": SITE_MEASURES["disagreement"]}
    )
    user_keys = sorted(keys - {*AXES, *LINK_AXES, *paper, *DIAGNOSTICS, *COST_KEYS})
    parts = {
        "error terms and losses": paper,
        "your metrics": {key: key for key in user_keys},
        "diagnostics": DIAGNOSTICS,
    }
    return [
        {"key": key, "title": title, "part": part}
        for part, titles in parts.items()
        for key, title in titles.items()
        if key in keys
    ]


def list_axes(runs: list[StoredRun]) -> dict[str, str]:
    """Return the horizontal axes: the costs that all runs counted."""
    last_entries = [run.last_evaluation for run in runs if run.lines]
    counted = [
        key for key in LINK_AXES if last_entries and all(key in last for last in last_entries)
    ]
    return AXES | {key: LINK_AXES[key] for key in counted}


def are_single_sites(runs: list[StoredRun]) -> bool:
    """Return whether each run is that of one site."""
    return all("site" in run.manifest for run in runs)


def _agent_positions(network: dict[str, Any]) -> list[list[float]]:
    """Return the positions of the agents: the real ones, if known."""
    if "places" in network:
        return scale_positions(network["places"])
    return layout_agents(network["agents"], network["edges"])


def _describe_run(run: StoredRun, step: int) -> dict[str, Any]:
    """Return the facts and curves of one run."""
    entries = _take_every(run.lines, step)
    keys = dict.fromkeys(key for entry in entries for key in entry if key != "agents")
    return {
        "id": hashlib.sha256(str(run.path.resolve()).encode()).hexdigest()[:12],
        **{key: to_strict_json(run.manifest.get(key)) for key in MANIFEST_KEYS},
        "algorithm": run.manifest["algorithm"]["name"],
        "options": to_strict_json(flatten_options(run.manifest["algorithm"].get("options") or {})),
        "history": {key: [round_number(entry.get(key)) for entry in entries] for key in keys},
        **(
            {"privacy": to_strict_json(privacy)} if (privacy := run.manifest.get("privacy")) else {}
        ),
    }


def _describe_details(run: StoredRun, step: int) -> dict[str, Any]:
    """Return the agents' own values of a run, and its configuration."""
    entries = _take_every(run.lines, step)
    tables = [entry.get("agents") or {} for entry in entries]
    keys = dict.fromkeys(key for table in tables for key in table if key != "solver_error")
    return {
        "config": read_config(run),
        "answer": _describe_answer(run),
        "site": run.manifest.get("site", {}).get("name", ""),
        "costs": to_strict_json(run.manifest.get("costs")),
        "traffic": run.manifest.get("traffic") or [],
        "losses": run.manifest.get("losses") or [],
        "frames": [entry["round"] for entry in entries],
        "agents": {
            key: [[round_number(v, 4) for v in table.get(key) or []] for table in tables]
            for key in keys
        },
    }


def _describe_answer(run: StoredRun) -> dict[str, Any] | None:
    """Return the summary of a run, and the numbers of its agents' models; None before its end."""
    if not (answer := run.manifest.get("answer")):
        return None
    summary = summarize_run(run.manifest, run.lines)
    title, values = model_entries(answer)
    agents = agent_columns(run.manifest, run.manifest["network"]["agents"])
    return {
        "sentences": summary.sentences,
        "sections": [section._asdict() for section in summary.sections],
        "models": {"title": title, "agents": agents, "values": to_strict_json(values)},
    }


def _take_every(entries: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    """Keep the first, every `step`-th and the last, so that runs keep equal rounds."""
    last = len(entries) - 1
    return [entry for i, entry in enumerate(entries) if i % step == 0 or i == last]


def round_number(value: Any, digits: int = 6) -> float | int | None:
    """Round a number to few characters; None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if isinstance(value, int) or (value.is_integer() and abs(value) < 2**53):
        return int(value)
    return float(f"{value:.{digits}g}")


def to_strict_json(value: Any) -> Any:
    """Convert to strict JSON: a number that is not finite becomes its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: to_strict_json(inner) for key, inner in value.items()}
    return [to_strict_json(inner) for inner in value] if isinstance(value, list) else value


class _DistinctItems(list[Any]):
    """List that stores equal items once."""

    def index_of(self, item: Any) -> int:
        if item not in self:
            self.append(item)
        return self.index(item)
