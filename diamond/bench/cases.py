"""Problems of the benchmark, each with its network and number of rounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import data, gallery, network
from ..metrics.evaluations import geometric_rounds
from ..network import Network
from ..problem import Problem

EVALUATIONS = 72  # of a final run, before rounds are rounded: about fifty remain
SplitRows = tuple[list[Any], list[Any], list[Any]]  # train, valid, test


@dataclass(frozen=True)
class BenchmarkCase:
    """Problem on a network."""

    name: str
    title: str  # description
    make: Callable[[], tuple[Problem, Network]]
    rounds: int
    batch: int
    topology: str
    level: str  # the lower level: personal, common or none
    kind: str  # of the network: symmetric, balanced or directed
    # Everything that defines the case, as JSON: key of the trial cache.
    cache_description: Mapping[str, Any]
    tables_fit: bool = True  # whether g_yy, and a table of all batches, fit in memory

    @property
    def evaluation_rounds(self) -> list[int]:
        """Return the rounds of the evaluations, spaced by a nearly constant factor."""
        return geometric_rounds(self.rounds, EVALUATIONS)


def define_case(
    title: str,
    rounds: int,
    batch: int,
    topology: str,
    *,
    level: str = "personal",
    tables_fit: bool = True,
) -> Callable[..., BenchmarkCase]:
    """Decorate a function that makes a problem and a network, as the case of its name."""

    def decorate(make: Callable[[], tuple[Problem, Network]]) -> BenchmarkCase:
        name = make.__name__.replace("_", "-")
        kind = "symmetric" if topology not in ("one way", "changing") else "balanced"
        return BenchmarkCase(
            name, title, make, rounds, batch, topology, level, kind, {"case": name}, tables_fit
        )

    return decorate


define_common_case = partial(define_case, level="common")
define_large_case = partial(define_case, tables_fit=False)


def digit_rows(
    agents: int, shards: int | None = None, seed: int = 0, coarse: bool = False
) -> SplitRows:
    """Return train, valid and test rows of 1,797 digits, iid or `shards` runs of labels per agent.

    If `coarse` is true, images have 4 x 4 pixels instead of 8 x 8, for a quarter of the work.
    """
    a, b = data.digits().train
    if coarse:
        a = np.asarray(a).reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16)
    parts = (
        data.partition.iid(b, agents, seed)
        if shards is None
        else data.partition.by_label(b, agents, seed, shards=shards)
    )
    split = data.partition.split(parts, (0.4, 0.4, 0.2), seed)
    train, valid, test = ([{"a": a[i], "b": b[i]} for i in part] for part in split)
    return train, valid, test


def scaled_rows(agents: int, ratio: float, seed: int = 0) -> SplitRows:
    """Make rows of a regression whose features have scales from 1 down to 1 / `ratio`."""
    random = np.random.default_rng(seed)
    scales = ratio ** -np.linspace(0, 1, 12)
    truth = random.normal(size=12) * (np.arange(12) < 6) / scales

    def site() -> dict[str, Any]:
        a = random.normal(size=(80, 12)) * scales
        return {"a": a, "b": a @ truth + random.normal(size=80)}

    train, valid, test = ([site() for _ in range(agents)] for _ in range(3))
    return train, valid, test


@define_case("quadratic, noise 0.5, ring of 8", 1000, 8, "ring")
def quadratic() -> tuple[Problem, Network]:
    return gallery.quadratic(agents=8, noise=0.5), network.ring(8)


@define_case("quadratic, noise 2, agents that differ more, star of 8", 1000, 8, "star")
def quadratic_noisy() -> tuple[Problem, Network]:
    problem = gallery.quadratic(agents=8, noise=2.0, heterogeneity=3.0)
    return problem, network.star(8)


@define_case("quadratic, lower level of condition 100, grid of 9", 1500, 8, "grid")
def quadratic_stiff() -> tuple[Problem, Network]:
    problem = gallery.quadratic(agents=9, mu=0.05, L=5.0, noise=0.2)
    return problem, network.grid(3, 3)


@define_case("penalties of a ridge regression, scales 1 to 1/10, path of 6", 1500, 16, "path")
def ridge() -> tuple[Problem, Network]:
    return gallery.regression(*scaled_rows(6, 10.0)), network.path(6)


@define_large_case(
    "penalties of softmax regressions, digits, random graph of 9", 1000, 16, "random"
)
def penalties() -> tuple[Problem, Network]:
    problem = gallery.hyperparameter(*digit_rows(9), classes=10)
    return problem, network.erdos_renyi(9, p=0.4, seed=0)


@define_large_case("penalties of support vectors, digits, ring of 6", 1000, 16, "ring")
def support_vectors() -> tuple[Problem, Network]:
    return gallery.support_vectors(*digit_rows(6), classes=10), network.ring(6)


@define_large_case("meta-learning, digits by label, random graph of 9", 1000, 16, "random")
def meta_learning() -> tuple[Problem, Network]:
    problem = gallery.meta_learning(*digit_rows(9, shards=2))
    return problem, network.erdos_renyi(9, p=0.4, seed=0)


@define_case("actors and critics, tabular game, random graph of 9", 1000, 6, "random")
def actor_critic() -> tuple[Problem, Network]:
    return gallery.actor_critic(), network.erdos_renyi(9, p=0.4, seed=0)


@define_common_case("quadratic in common, noise 0.5, ring of 8", 1000, 8, "ring")
def common_quadratic() -> tuple[Problem, Network]:
    problem = gallery.quadratic(agents=8, noise=0.5, lower_level="common")
    return problem, network.ring(8)


@define_common_case(
    "quadratic in common, noise 2, agents that differ more, star of 8", 1000, 8, "star"
)
def common_noisy() -> tuple[Problem, Network]:
    problem = gallery.quadratic(agents=8, noise=2.0, heterogeneity=3.0, lower_level="common")
    return problem, network.star(8)


@define_common_case("quadratic in common, larger, exponential graph of 16", 1000, 8, "exponential")
def common_wide() -> tuple[Problem, Network]:
    problem = gallery.quadratic(agents=16, upper=10, lower=20, noise=0.5, lower_level="common")
    return problem, network.exponential(16)


@define_common_case(
    "cleaning of labels, digits of 4 x 4, ring of 5", 1000, 32, "ring", tables_fit=False
)
def hyper_cleaning() -> tuple[Problem, Network]:
    return gallery.hyper_cleaning(*digit_rows(5, coarse=True)), network.ring(5)


@define_common_case(
    "cleaning of labels, digits of 4 x 4 by label, random graph of 9",
    1000,
    32,
    "random",
    tables_fit=False,
)
def hyper_cleaning_skewed() -> tuple[Problem, Network]:
    problem = gallery.hyper_cleaning(*digit_rows(9, shards=3, coarse=True))
    return problem, network.erdos_renyi(9, p=0.4, seed=0)


@define_common_case("evaluation of a policy, ring of 5", 1000, 8, "ring")
def policy_evaluation() -> tuple[Problem, Network]:
    return gallery.policy_evaluation(), network.ring(5)


@define_case("quadratic, noise 0.5, one agent", 1000, 8, "alone")
def alone_quadratic() -> tuple[Problem, Network]:
    return gallery.quadratic(agents=1, rows=320, noise=0.5), network.complete(1)


@define_case("quadratic, lower level of condition 100, one agent", 1500, 8, "alone")
def alone_stiff() -> tuple[Problem, Network]:
    problem = gallery.quadratic(agents=1, rows=320, mu=0.05, L=5.0, noise=0.2)
    return problem, network.complete(1)


@define_large_case(
    "penalties of softmax regressions, digits of 4 x 4, one agent", 1000, 32, "alone"
)
def alone_penalties() -> tuple[Problem, Network]:
    return gallery.hyperparameter(*digit_rows(1, coarse=True), classes=10), network.complete(1)


@define_case("penalties of a ridge regression, scales 1 to 1/10, one agent", 1500, 16, "alone")
def alone_ridge() -> tuple[Problem, Network]:
    return gallery.regression(*scaled_rows(1, 10.0)), network.complete(1)


@define_large_case("cleaning of labels, digits of 4 x 4, one agent", 1000, 32, "alone")
def alone_cleaning() -> tuple[Problem, Network]:
    problem = gallery.hyper_cleaning(*digit_rows(1, coarse=True), lower_level="personal")
    return problem, network.complete(1)


@define_large_case("meta-learning, digits of 4 x 4, one agent", 1000, 32, "alone")
def alone_meta_learning() -> tuple[Problem, Network]:
    return gallery.meta_learning(*digit_rows(1, coarse=True)), network.complete(1)


def _define_linked_case(
    name: str, title: str, topology: str, make_network: Callable[[], Network]
) -> BenchmarkCase:
    """Return the case of penalized regressions of eight agents, over links of 1 Mbit/s."""

    def make() -> tuple[Problem, Network]:
        problem = gallery.hyperparameter(*digit_rows(8, coarse=True), classes=10)
        return problem, make_network().with_links(rate=1e6, latency=0.01)

    make.__name__ = name
    title = f"penalties, digits of 4 x 4, {title}"
    return define_case(title, 1000, 16, topology, tables_fit=False)(make)


links_perfect = _define_linked_case(
    "links_perfect", "ring of 8 at 1 Mbit/s", "ring", lambda: network.ring(8)
)
links_dropping = _define_linked_case(
    "links_dropping",
    "ring of 8 at 1 Mbit/s, 10 % of the messages lost",
    "ring",
    lambda: network.ring(8).through(network.channels.drops(0.1)),
)
links_four_bits = _define_linked_case(
    "links_four_bits",
    "ring of 8 at 1 Mbit/s, 4 bits a number",
    "ring",
    lambda: network.ring(8).through(network.channels.quantized(4)),
)
links_one_way = _define_linked_case(
    "links_one_way", "one-way ring of 8 at 1 Mbit/s", "one way", lambda: network.one_way_ring(8)
)
links_one_peer = _define_linked_case(
    "links_one_peer", "one peer a round of 8 at 1 Mbit/s", "changing", lambda: network.one_peer(8)
)

# Cases of the suites.
Cases = tuple[BenchmarkCase, ...]
PERSONAL: Cases = (quadratic, quadratic_noisy, quadratic_stiff, ridge, penalties, support_vectors)
PERSONAL += (meta_learning, actor_critic)
COMMON: Cases = (common_quadratic, common_noisy, common_wide, hyper_cleaning, hyper_cleaning_skewed)
COMMON += (policy_evaluation,)
ONE_AGENT: Cases = (alone_quadratic, alone_stiff, alone_ridge, alone_penalties, alone_cleaning)
ONE_AGENT += (alone_meta_learning,)
LINKS: Cases = (links_perfect, links_dropping, links_four_bits, links_one_way, links_one_peer)
