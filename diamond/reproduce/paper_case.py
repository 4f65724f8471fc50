"""Setting of an experiment of the paper: data, agents, partition, network and scale; its trials."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import data, gallery, network
from ..hypergradient import neumann
from ..interface.round_interface import Algorithm
from ..network import Network
from ..problem import Problem
from ..tuning.trial_cache import Trial, TrialRequest, cached_trials
from . import paper_methods

SPLIT_SHARES = (0.4, 0.4, 0.2)  # training, validation and test rows of each agent
BATCH, TERMS = 32, 10  # the paper states neither
# L_g of eq. (5). Meta-learning: about the largest curvature observed (see the tables); for 20 tanh
# units it is at most 1 + (20 + 1)/2 = 11.5. a9a: three times the initial curvature.
LIPSCHITZ = {"mnist": 8.0, "cifar10": 8.0, "a9a": 5.0}
PUBLISHED_CONSTANTS = {
    "mnist": (10.0, 10.0, 0.1),
    "cifar10": (10.0, 10.0, 0.1),
    "a9a": (5.0, 1.5, 0.1),
}
Constants = tuple[float, float, float]  # c_alpha, c_beta, c_eta = c_gamma
# Rows assigned at random, or sorted by label and cut into one or two runs per agent.
PARTITIONS: dict[str, Callable[[np.ndarray, int], list[np.ndarray]]] = {
    "iid": lambda labels, agents: data.partition.iid(labels, agents, 0),
    "label": lambda labels, agents: data.partition.by_label(labels, agents, 0),
    "label2": lambda labels, agents: data.partition.by_label(labels, agents, 0, shards=2),
}


@dataclass(frozen=True)
class ExperimentScale:
    """Scale of an experiment."""

    name: str
    rounds: int
    every: int
    seeds: int
    rows: int | None  # rows of the data set in use; None: all


FULL = ExperimentScale("full", rounds=2000, every=100, seeds=10, rows=None)
QUICK = ExperimentScale("quick", rounds=120, every=20, seeds=2, rows=3000)


@dataclass(frozen=True)
class PaperCase:
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

    def problem(self, scale: ExperimentScale, folder: Path | None) -> Problem:
        """Build the problem; each agent's rows are split 40 / 40 / 20 %."""
        return _build_problem(self.dataset, self.agents, self.partition, scale.rows, folder=folder)

    def algorithm(self, method: str, constants: Constants, frozen: bool = False) -> Algorithm:
        """Build `method` with the paper's schedules and constants; if `frozen`, x does not move."""
        chain = neumann(TERMS, LIPSCHITZ[self.dataset])
        return paper_methods.build_method(method, constants, BATCH, chain, frozen=frozen)

    def describe(self, scale: ExperimentScale) -> dict[str, Any]:
        """Return everything that defines a trial except method, constants and seed."""
        constants = {"batch": BATCH, "terms": TERMS, "lipschitz": LIPSCHITZ[self.dataset]}
        scale_fields = {k: v for k, v in asdict(scale).items() if k not in ("name", "seeds")}
        return asdict(self) | scale_fields | constants


@cache  # one object per problem, since an equal copy would be compiled again
def _build_problem(
    dataset: str, agents: int, partition: str, count: int | None, *, folder: Path | None
) -> Problem:
    features, labels = _load_rows(dataset, folder)
    if count is not None:
        selected = np.random.default_rng(0).permutation(len(labels))[:count]
        features, labels = features[selected], labels[selected]
    split = data.partition.split(PARTITIONS[partition](labels, agents), SPLIT_SHARES, 0)
    train, valid, test = ([{"a": features[i], "b": labels[i]} for i in part] for part in split)
    if dataset == "a9a":
        return gallery.hyperparameter(train, valid, test)
    return gallery.meta_learning(train, valid, test)


@cache
def _load_rows(dataset: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if dataset == "cifar10":
        pixels, labels = data.cifar10(folder, batches=2).train
        return (pixels - pixels.mean()) / pixels.std(), labels
    dataset_rows = data.mnist(folder) if dataset == "mnist" else data.a9a(folder)
    if dataset == "a9a":  # 48,842 rows, split again as in the paper
        assert dataset_rows.test is not None
        arrays = zip(dataset_rows.train, dataset_rows.test)
        features, labels = (np.concatenate(pair) for pair in arrays)
        return features, labels
    return dataset_rows.train


def run_trials(
    case: PaperCase,
    scale: ExperimentScale,
    method: str,
    settings: Sequence[tuple[Constants, int]],
    cache_folder: Path,
    folder: Path | None,
    on_trial: Callable[[int], None],
    frozen: bool = False,
) -> list[Trial]:
    """Return the trials of `method` with each (constants, seed), cached or run and cached.

    If `frozen` is true, x does not move.
    """
    description: dict[str, Any] = case.describe(scale) | {"method": method, "frozen": frozen}
    requests = [
        TrialRequest(
            case.algorithm(method, constants, frozen),
            seed,
            description | {"constants": constants, "seed": seed},
        )
        for constants, seed in settings
    ]
    problem = lambda: case.problem(scale, folder)
    trials = cached_trials(
        problem,
        case.network(),
        requests,
        scale.rounds,
        every=scale.every,
        folder=cache_folder,
        on_trial=on_trial,
    )
    return [
        {"case": description, "constants": list(constants), "seed": seed}
        | {key: value for key, value in trial.items() if key != "about"}
        for (constants, seed), trial in zip(settings, trials)
    ]
