"""Setting of an experiment of the paper: data, agents, partition, network and scale."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np

from .. import data, gallery, network
from ..hypergradient import neumann
from ..interface.round_interface import Algorithm
from ..network import Network
from ..problem import Problem
from . import paper_methods

SHARES = (0.4, 0.4, 0.2)  # training, validation and test rows of each agent
BATCH, TERMS = 32, 10  # the paper states neither
# L_g of eq. (5). Meta-learning: about the largest curvature observed (see the tables); for 20 tanh
# units it is at most 1 + (20 + 1)/2 = 11.5. a9a: three times the initial curvature.
LIPSCHITZ = {"mnist": 8.0, "cifar10": 8.0, "a9a": 5.0}
PUBLISHED = {"mnist": (10.0, 10.0, 0.1), "cifar10": (10.0, 10.0, 0.1), "a9a": (5.0, 1.5, 0.1)}
Constants = tuple[float, float, float]  # c_alpha, c_beta, c_eta = c_gamma
# Rows assigned at random, or sorted by label and cut into one or two runs per agent.
PARTITIONS: dict[str, Callable[[np.ndarray, int], list[np.ndarray]]] = {
    "iid": lambda labels, agents: data.partition.iid(labels, agents, 0),
    "label": lambda labels, agents: data.partition.by_label(labels, agents, 0),
    "label2": lambda labels, agents: data.partition.by_label(labels, agents, 0, shards=2),
}


@dataclass(frozen=True)
class Scale:
    """Scale of an experiment."""

    name: str
    rounds: int
    every: int
    seeds: int
    rows: int | None  # rows of the data set in use; None: all


FULL = Scale("full", rounds=2000, every=100, seeds=10, rows=None)
QUICK = Scale("quick", rounds=120, every=20, seeds=2, rows=3000)


@dataclass(frozen=True)
class Case:
    """Problem, agents and network of an experiment."""

    dataset: str
    agents: int
    partition: str  # a key of PARTITIONS
    p: float = 0.3  # edge probability of the Erdos-Renyi graph
    graph_seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.agents}-{self.partition}-p{self.p}"

    def network(self) -> Network:
        """Build the Erdos-Renyi network with the paper's mixing; redraw if disconnected."""
        return network.erdos_renyi(self.agents, self.p, self.graph_seed)

    def problem(self, scale: Scale, folder: Path | None) -> Problem:
        """Build the problem; each agent's rows are split 40 / 40 / 20 %."""
        return _problem(self.dataset, self.agents, self.partition, scale.rows, folder)

    def algorithm(self, method: str, constants: Constants, frozen: bool = False) -> Algorithm:
        """Build `method` with the paper's schedules and constants; if `frozen`, x does not move."""
        chain = neumann(TERMS, LIPSCHITZ[self.dataset])
        return paper_methods.method(method, constants, BATCH, chain, frozen)

    def describe(self, scale: Scale) -> dict:
        """Return everything that defines a trial except method, constants and seed."""
        fixed = {"batch": BATCH, "terms": TERMS, "lipschitz": LIPSCHITZ[self.dataset]}
        kept = {k: v for k, v in asdict(scale).items() if k not in ("name", "seeds")}
        return asdict(self) | kept | fixed


@cache  # one object per problem, since an equal copy would be compiled again
def _problem(
    dataset: str, agents: int, partition: str, count: int | None, folder: Path | None
) -> Problem:
    features, labels = _rows(dataset, folder)
    if count is not None:
        chosen = np.random.default_rng(0).permutation(len(labels))[:count]
        features, labels = features[chosen], labels[chosen]
    split = data.partition.split(PARTITIONS[partition](labels, agents), SHARES, 0)
    train, valid, test = ([{"a": features[i], "b": labels[i]} for i in part] for part in split)
    if dataset == "a9a":
        return gallery.hyperparameter(train, valid, test)
    return gallery.meta_learning(train, valid, test)


@cache
def _rows(dataset: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if dataset == "cifar10":
        pixels, labels = data.cifar10(folder, batches=2).train
        return (pixels - pixels.mean()) / pixels.std(), labels
    found = data.mnist(folder) if dataset == "mnist" else data.a9a(folder)
    if dataset == "a9a":  # 48,842 rows, split again as in the paper
        assert found.test is not None
        both = zip(found.train, found.test)
        features, labels = (np.concatenate(pair) for pair in both)
        return features, labels
    return found.train
