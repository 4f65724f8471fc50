"""Properties of links: rate, latency, loss, energy, and interference."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from diamond.network.links.link_values import (
    ABOVE,
    LEAST,
    RULES,
    Edge,
    Numbers,
    is_number,
    of_agents,
    of_edges,
)

APART = ("edges", "one_way")  # set by the network, not by the user
FLAGS = ("half_duplex", "shared_medium", "pulled")
HEADERS = 270  # bytes of gRPC, TLS and framing around the arrays of a message
FEW = 300  # most links for the careful coloring
PREFIXES = {-4: "p", -3: "n", -2: "u", -1: "m", 1: "k", 2: "M", 3: "G", 4: "T"}


@dataclass(frozen=True, eq=False, repr=False)
class Links:
    """Links of a network, one value per edge in the order of its edges, and agent speeds.

    b bytes over link e, in one direction, take

        d_e(b) = latency_e + 8 b / (rate_e (1 - loss_e)) + timeout_e G

    seconds. A share `loss` of the packets is lost and sent again `timeout` seconds later, so each
    packet is sent 1 / (1 - loss) times on average; G is the number of resends of the unluckiest
    packet of the message (`resending`). The energy is 8 b joules_per_bit_e / (1 - loss_e) joules.
    If messages are `pulled`, b includes HEADERS. `clock` derives the time of a run.
    """

    edges: tuple[Edge, ...]
    rate: Numbers  # bit/s, in each direction
    latency: Numbers  # s
    loss: Numbers  # share of packets that are lost
    joules_per_bit: Numbers | None
    timeout: Numbers  # s until a lost packet is sent again
    half_duplex: bool  # an agent communicates with one neighbour at a time
    shared_medium: bool  # and nobody else within range of the two does
    pulled: bool  # a message is requested before it is sent
    compute: Numbers | None  # seconds per agent and round; None: measured
    stragglers: Numbers  # slowdown factor of each agent
    slow_chance: float  # probability that an agent is slow in a round
    slow_factor: float  # slowdown factor then
    one_way: bool = False  # links are (sender, receiver)

    def seconds(self, count: float) -> Numbers:
        """Return d_e(count) of every link, without resends."""
        return self.latency + 8 * (count + self.headers) / (self.rate * (1 - self.loss))

    @property
    def headers(self) -> int:
        """Bytes around a message, and of its request."""
        return HEADERS if self.pulled else 0

    @property
    def waits(self) -> bool:
        """Whether resends take time."""
        return bool((self.timeout * self.loss).any())

    def joules(self, count: NDArray[Any]) -> float | None:
        """Return the joules of `count` bytes per link; None if no energy was given."""
        if self.joules_per_bit is None:
            return None
        return float(np.sum(8 * count * self.joules_per_bit / (1 - self.loss)))

    @property
    def ways(self) -> int:
        """Number of directions in which a link is used."""
        return 1 if self.one_way else 2

    @property
    def takes_turns(self) -> bool:
        """Whether links wait for one another."""
        return self.half_duplex or self.shared_medium

    @cached_property
    def turns(self) -> NDArray[np.int64]:
        """Turn of each link if links wait for one another: a coloring without conflicts.

        Links conflict if they share an agent; in a shared medium also if an end of one hears an end
        of the other. The coloring is greedy (DSATUR, or by degree if that takes long), so it may
        use a few colors too many.
        """
        own: dict[int, list[Edge]] = {}
        for edge in self.edges:
            for end in edge:
                own.setdefault(end, []).append(edge)
        rivals = nx.Graph()
        rivals.add_nodes_from(self.edges)
        for edge in self.edges:
            near = set(edge)
            if self.shared_medium:
                near = {end for agent in edge for other in own[agent] for end in other}
            rivals.add_edges_from((edge, other) for agent in near for other in own[agent])
        rivals.remove_edges_from([(edge, edge) for edge in self.edges])
        few = len(self.edges) <= FEW
        colours = nx.greedy_color(rivals, "DSATUR" if few else "largest_first")
        return np.array([colours[edge] for edge in self.edges], np.int64)

    def table(self) -> dict[str, Any]:
        """Return the options of `Network.with_links` that make these links, for files."""
        found: dict[str, Any] = {name: _brief(getattr(self, name)) for name in RULES}
        found |= {name: getattr(self, name) for name in FLAGS}
        found["compute"] = "measured" if self.compute is None else _brief(self.compute)
        found |= {"stragglers": _brief(self.stragglers)}
        found |= {"slow_chance": self.slow_chance, "slow_factor": self.slow_factor}
        return {name: value for name, value in found.items() if value is not None}

    def __repr__(self) -> str:
        """Describe the links briefly, as in "1 Mbit/s, 10 ms, loss 5 %"."""
        if not self.edges:
            return "none"
        said = [_span(self.rate, "bit/s"), _span(self.latency, "s")]
        said += [f"loss {_span(100 * self.loss, '%')}"] if self.loss.any() else []
        said += [f"sent again after {_span(self.timeout, 's')}"] if self.waits else []
        said += [_span(self.joules_per_bit, "J/bit")] if self.joules_per_bit is not None else []
        said += ["half duplex"] if self.half_duplex else []
        said += ["shared medium"] if self.shared_medium else []
        said += ["pulled"] if self.pulled else []
        if self.compute is None:
            said.append("computing as measured")
        elif self.compute.any():
            said.append(f"computing {_span(self.compute, 's')}")
        if slow := int(np.sum(self.stragglers != 1)):
            said.append(f"{slow} straggler{'s' * (slow != 1)}")
        if self.slow_chance:
            said.append(f"{100 * self.slow_chance:g} % slow by {self.slow_factor:g}")
        return ", ".join(said)


def revised(
    before: Links | None,
    edges: Sequence[Edge],
    agents: int,
    given: Mapping[str, Any],
    one_way: bool = False,
) -> Links:
    """Return `before` updated with the options in `given` that are not None.

    Without `before`, `given` needs a rate. `one_way`: edges are (sender, receiver).
    """
    start: dict[str, Any] = {"latency": 0.0, "loss": 0.0, "compute": 0.0, "stragglers": 1.0}
    start |= {"timeout": 0.0, "slow_chance": 0.0, "slow_factor": 1.0, **dict.fromkeys(FLAGS, False)}
    if before is not None:
        start = {f.name: getattr(before, f.name) for f in fields(before) if f.name not in APART}
        start["compute"] = "measured" if before.compute is None else before.compute
    asked = start | {name: value for name, value in given.items() if value is not None}
    if "rate" not in asked:
        raise ValueError("links need a rate in bit/s, as in with_links(rate=1e6)")
    for name in FLAGS:
        if not isinstance(asked[name], bool):
            raise ValueError(f"{name} is {asked[name]!r}; it must be true or false")
    if asked["pulled"] and one_way:
        raise ValueError(
            "pulled messages are asked for over their link, and these go one way: leave pulled out"
        )
    chance, factor = asked["slow_chance"], asked["slow_factor"]
    if not (is_number(chance) and 0 <= chance <= 1):
        raise ValueError(f"slow_chance is {chance!r}; a chance lies between 0 and 1")
    if not (is_number(factor) and factor >= 1):
        raise ValueError(f"slow_factor is {factor!r}; it says how many times slower, 1 or more")
    each = lambda name: (
        None if asked.get(name) is None else of_edges(name, asked[name], edges, one_way)
    )
    links = {name: each(name) for name in RULES}
    measured = isinstance(asked["compute"], str) and asked["compute"] == "measured"
    return Links(
        tuple(edges),
        **links,  # type: ignore[arg-type]
        **{name: asked[name] for name in FLAGS},
        compute=None if measured else of_agents("compute", asked["compute"], agents, LEAST),
        stragglers=of_agents("stragglers", asked["stragglers"], agents, ABOVE, 1.0),
        slow_chance=float(chance),
        slow_factor=float(factor),
        one_way=one_way,
    )


def _brief(values: Numbers | None) -> float | list[float] | None:
    """Return one number if all values are equal."""
    if values is None:
        return None
    return float(values[0]) if len(set(values.tolist())) == 1 else values.tolist()


def _span(values: Numbers, unit: str) -> str:
    """Format the smallest and the largest value with their unit: "1 to 4 Mbit/s"."""
    low, high = float(values.min()), float(values.max())
    power = math.floor(math.log10(high) / 3) if high and unit != "%" else 0
    prefix = PREFIXES.get(power, "")
    scale = 1000.0**power if prefix else 1.0
    ends = dict.fromkeys(f"{value / scale:.3g}" for value in (low, high))
    return f"{' to '.join(ends)} {prefix}{unit}"
