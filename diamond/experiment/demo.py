"""The demo: four methods on handwritten digits, split over nine agents by label."""

from typing import Any

from .. import data, network, problems
from ..hypergradient import neumann
from ..network import Network
from ..problem import Problem
from ..reproduce.paper import METHODS as MAKERS

Rows = dict[str, Any]  # "a": features, "b": labels
AGENTS, ROUNDS, EVERY, BATCH = 9, 400, 20, 32
TERMS, LIPSCHITZ = 10, 8.0
CHAIN = neumann(terms=TERMS, lipschitz=LIPSCHITZ)

# c_alpha, c_beta, c_eta = c_gamma: each method's best of one grid (benchmarks/digits_grid.py), the
# smallest average metric among the settings that learn. By the smallest upper loss in the end
# GT-SGD would lead: 0.62 against DIAMOND's 0.74 in the mean of five seeds.
METHODS: dict[str, tuple[float, ...]] = {
    "DIAMOND": (0.3, 1 / 0.3, 1 / 0.3**2),
    "GT-SGD": (0.3, 1.0),
    "M-SGD": (0.3, 0.1 / 0.3, 1 / 0.3**2),
    "D-SGD": (0.2, 0.3 / 0.2),
}


def digits(agents: int = AGENTS, seed: int = 0) -> Problem:
    """Hidden layers x for all agents, a last layer y_i for the digits of each."""
    return problems.meta_learning(*dealt(agents, seed))


def dealt(agents: int = AGENTS, seed: int = 0) -> tuple[list[Rows], list[Rows], list[Rows]]:
    """1,797 digits of 8 x 8 pixels; each agent has two runs of the rows sorted by label."""
    a, b = data.digits().train
    parts = data.partition.by_label(b, agents, seed, shards=2)
    split = data.partition.split(parts, (0.4, 0.4, 0.2), seed)
    train, valid, test = ([{"a": a[i], "b": b[i]} for i in part] for part in split)
    return train, valid, test


def peers() -> Network:
    """The paper's network: Erdos-Renyi with p = 0.3, Laplacian mixing."""
    return network.erdos_renyi(AGENTS, p=0.3, seed=0)


def settings() -> dict[str, Any]:
    """All four on the same problem, network and draws, as an experiment's file says it."""
    return {
        "name": "demo",
        "rounds": ROUNDS,
        "every": EVERY,
        "problem": "digits",
        "network": f"er:{AGENTS},p=0.3,seed=0",
        "algorithm": [algorithm(name) for name in METHODS],
    }


def algorithm(name: str) -> dict[str, Any]:
    """A method with its constants and the schedules of Theorem 1, as a file says it."""
    c_alpha, c_beta, *c_eta = METHODS[name]
    alpha = f"power({c_alpha})"
    steps = {"alpha": alpha, "beta": f"scaled({c_beta}, {alpha})"}
    steps |= {key: f"squared({c}, {alpha})" for c in c_eta for key in ("eta", "gamma")}
    chain = {"name": "neumann", "terms": TERMS, "lipschitz": LIPSCHITZ}
    return {
        "name": MAKERS[name].__name__,
        "label": name,
        "batch": BATCH,
        "hypergradient": chain,
        **steps,
    }
