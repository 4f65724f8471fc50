"""Demo: four methods on handwritten digits, split over nine agents by label."""

from typing import Any

from .. import network
from ..config.digits import AGENTS
from ..hypergradient import neumann
from ..network import Network
from ..reproduce.paper_methods import METHODS as MAKERS

ROUNDS, EVERY, BATCH = 400, 20, 32
TERMS, LIPSCHITZ = 10, 8.0
CHAIN = neumann(terms=TERMS, lipschitz=LIPSCHITZ)

# c_alpha, c_beta, c_eta = c_gamma: the best of each method on one grid (benchmarks/digits_grid.py),
# by the smallest average metric among the settings that learn. By the smallest final upper loss
# GT-SGD would lead: 0.62 against DIAMOND's 0.74, the mean of five seeds.
METHODS: dict[str, tuple[float, ...]] = {
    "DIAMOND": (0.3, 1 / 0.3, 1 / 0.3**2),
    "GT-SGD": (0.3, 1.0),
    "M-SGD": (0.3, 0.1 / 0.3, 1 / 0.3**2),
    "D-SGD": (0.2, 0.3 / 0.2),
}


def make_network() -> Network:
    """Build the paper's network: Erdos-Renyi with p = 0.3, Laplacian mixing."""
    return network.erdos_renyi(AGENTS, p=0.3, seed=0)


def experiment_tables() -> dict[str, Any]:
    """Return the tables of an experiment with all four methods on the same problem and network."""
    return {
        "name": "demo",
        "rounds": ROUNDS,
        "every": EVERY,
        "problem": "digits",
        "network": f"er:{AGENTS},p=0.3,seed=0",
        "algorithm": [algorithm_table(name) for name in METHODS],
    }


def algorithm_table(name: str) -> dict[str, Any]:
    """Return the table of a method with its constants and the schedules of Theorem 1."""
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
