"""Results of a benchmark made by hand: three methods on three cases, from three seeds each.

On `smooth` diamond and dsgd tie in rounds, and diamond diverges once after it got there; on `noisy`
k_free diverges twice and dsgd never gets there; on `linked` links are timed, and dsgd without
tuning ends above its start.
"""

import math
from typing import Any

NAN = math.nan
# What a round costs: samples, calls, bytes.
COSTS_PER_ROUND = {"diamond": (8, 20, 100), "dsgd": (8, 18, 50), "k_free": (4, 24, 0)}
LOSSES: dict[str, dict[str, list[list[float]]]] = {
    "smooth": {
        "diamond": [[10, 5, 0.9, 0.4, 0.1], [10, 4, 0.8, 0.2], [10, 6, 3, 0.8, 0.3]],
        "dsgd": [[10, 6, 1.0, 0.9, 0.7], [10, 0.5, 0.4, 0.4, 0.4], [10, 7, 5, 4, 3]],
        "k_free": [[10, 8, 6, 3, 0.9], [10, 8, 5, 2, 0.6], [10, 7, 4, 0.7, 0.0]],
    },
    "noisy": {
        "diamond": [[4, 3, 2, 1.2, 1.0], [4, 2.5, 1.2, 1.1, 1.05], [4, 3.5, 3, 2, 1.1]],
        "dsgd": [[4, 3.5, 3, 2.8, 2.6], [4, 3.6, 3.1, 2.7, 2.5], [4, 3, 2.9, 2.8, 2.7]],
        "k_free": [[4, 9, NAN, NAN, NAN], [4, 2, 1.1, 1.05, 1.02], [4, 20, 300]],
    },
    "linked": {
        "diamond": [[2, 1, 0.5, 0.2, 0.1], [2, 1.1, 0.6, 0.3, 0.2], [2, 0.9, 0.4, 0.1, 0.0]],
        "dsgd": [[2, 0.15, 0.1, 0.1, 0.1], [2, 0.2, 0.2, 0.1, 0.1], [2, 0.1, 0.1, 0.1, 0.1]],
        "k_free": [[2, 1.5, 1, 0.6, 0.3], [2, 1.4, 0.9, 0.5, 0.25], [2, 1.6, 1.1, 0.7, 0.2]],
    },
}
CASES = {"smooth": ("ring", "personal"), "noisy": ("star", "personal")}
CASES["linked"] = ("ring", "common")


def make_run(
    method: str, losses: list[float], seed: int = 0, linked: bool = False
) -> dict[str, Any]:
    """One run with these losses, ten rounds apart; one that stops early, or at NaN, diverged."""
    rounds = [10.0 * i for i in range(len(losses))]
    names = ("samples", "calls", "bytes")
    history = {"round": rounds, "upper_loss": [float(loss) for loss in losses]}
    history |= {n: [r * cost for r in rounds] for n, cost in zip(names, COSTS_PER_ROUND[method])}
    history["seconds"] = [r * (0.01 + 0.001 * seed) for r in rounds]
    if linked:
        history["network_seconds"] = [r * COSTS_PER_ROUND[method][2] / 1e3 for r in rounds]
    has_diverged = len(losses) < 5 or any(math.isnan(loss) for loss in losses)
    return {"seed": seed, "diverged": 25 if has_diverged else None, "history": history}


def make_pair(case: str, method: str, tuned: list[list[float]]) -> dict[str, Any]:
    """A pair of case and method; without tuning it is an evaluation late, or above its start."""
    start = tuned[0][0]
    above = (case, method) == ("linked", "dsgd")
    untuned = [[start, *([2 * start] * 4 if above else losses[:-1])] for losses in tuned]
    make_runs = lambda losses_by_seed: [
        make_run(method, losses, i, case == "linked") for i, losses in enumerate(losses_by_seed)
    ]
    trials = [
        (0.1, {"short": 5.0}),  # did not go on
        (0.2, {"short": 3.0, "upper_loss": 2.0}),
        (0.4, {"short": 4.0, "upper_loss": math.inf}),
    ]
    return {
        "case": case,
        "method": method,
        "numbers": {"alpha": 0.2, "beta": 0.5},
        "best": 1,
        "tried": [{"numbers": {"alpha": a, "beta": 0.3 + a}} | v for a, v in trials]
        if method != "k_free"
        else [
            {"numbers": {"alpha": a, "beta": 0.5}, "short": 2.0, "upper_loss": 1.0}
            for a in (0.1, 0.2)
        ],
        "tuned": make_runs(tuned),
        "untuned": make_runs(untuned),
    }


def make_results() -> dict[str, Any]:
    """As `diamond.bench.suite_results.collect_results` returns them."""
    described = {"estimator": "plain", "moves": "gossip", "networks": "fixed", "reference": "x"}
    oracles = {"diamond": "neumann", "dsgd": "neumann", "k_free": "differences"}
    return {
        "suite": "small",
        "version": "1.0",
        "machine": {"processor": "x86_64", "device": "cpu", "processes": 1, "jax": "0.10"},
        "settings": 3,
        "seeds": [0, 1, 2],
        "tuning_seeds": [100, 101],
        "cases": {
            name: {
                "title": f"{name} in words",
                "rounds": 40,
                "batch": 8,
                "topology": topology,
                "lower_level": level,
            }
            for name, (topology, level) in CASES.items()
        },
        "methods": {
            name: {"solves": "personal, common", "oracle": oracles[name]} | described
            for name in COSTS_PER_ROUND
        },
        "pairs": [
            make_pair(case, name, LOSSES[case][name]) for case in CASES for name in COSTS_PER_ROUND
        ],
    }
