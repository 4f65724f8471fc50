"""The demo: four methods on handwritten digits, split over nine agents by label."""

from collections.abc import Callable

from . import data, network, problems
from .hypergradient import neumann
from .network import Network
from .paper import method
from .problem import Problem
from .run import Run
from .runtimes.simulate import simulate

AGENTS, ROUNDS, EVERY, BATCH = 9, 1000, 25, 32
CHAIN = neumann(terms=10, lipschitz=8.0)

# c_alpha, c_beta, c_eta = c_gamma: each method's best of one grid (benchmarks/digits_grid.py), the
# smallest average metric among the settings that learn.
METHODS: dict[str, tuple[float, ...]] = {
    "DIAMOND": (0.3, 1 / 0.3, 1 / 0.3**2),
    "GT-SGD": (0.3, 1.0),
    "M-SGD": (0.3, 0.1 / 0.3, 3 / 0.3**2),
    "D-SGD": (0.1, 3.0),
}


def digits(agents: int = AGENTS, seed: int = 0) -> Problem:
    """1,797 digits of 8 x 8 pixels; each agent has two runs of the rows sorted by label."""
    a, b = data.digits().train
    parts = data.partition.by_label(b, agents, seed, shards=2)
    split = data.partition.split(parts, (0.4, 0.4, 0.2), seed)
    train, valid, test = ([{"a": a[i], "b": b[i]} for i in part] for part in split)
    return problems.meta_learning(train, valid, test)


def peers() -> Network:
    """The paper's network: Erdos-Renyi with p = 0.3, Laplacian mixing."""
    return network.erdos_renyi(AGENTS, p=0.3, seed=0)


def compare(
    on_evaluation: Callable[[str, dict[str, float]], None], seed: int = 0
) -> dict[str, Run]:
    """All four on the same problem, network, draws and number of rounds."""
    problem, peer_network = digits(), peers()

    def one(name: str) -> Run:
        report = lambda entry: on_evaluation(name, entry)
        algorithm = method(name, METHODS[name], BATCH, CHAIN)
        return simulate(problem, peer_network, algorithm, ROUNDS, seed, EVERY, "blocks", report)

    return {name: one(name) for name in METHODS}
