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
    REQUIREMENTS,
    Edge,
    Numbers,
    agent_values,
    edge_values,
    is_number,
)

NETWORK_FIELDS = ("edges", "one_way")  # set by the network, not by the user
FLAGS = ("half_duplex", "shared_medium", "pulled")
HEADERS = 270  # bytes of gRPC, TLS and framing around the arrays of a message
MOST_FOR_DSATUR = 300  # most links for the careful coloring
PREFIXES = {-4: "p", -3: "n", -2: "u", -1: "m", 1: "k", 2: "M", 3: "G", 4: "T"}


@dataclass(frozen=True, eq=False, repr=False)
class Links:
    """Links of a network, one value per edge in the order of its edges, and agent speeds.

    b bytes over link e, in one direction, take

        d_e(b) = latency_e + 8 b / (rate_e (1 - loss_e)) + timeout_e G

    seconds. A share `loss` of the packets is lost and sent again `timeout` seconds later, so each
    packet is sent 1 / (1 - loss) times on average; G is the number of resends of the unluckiest
    packet of the message (`resends`). The energy is 8 b joules_per_bit_e / (1 - loss_e) joules.
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
    def has_resend_delay(self) -> bool:
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
        edges_of_agent: dict[int, list[Edge]] = {}
        for edge in self.edges:
            for end in edge:
                edges_of_agent.setdefault(end, []).append(edge)
        conflicts = nx.Graph()
        conflicts.add_nodes_from(self.edges)
        for edge in self.edges:
            nearby_agents = set(edge)
            if self.shared_medium:
                nearby_agents = {
                    end for agent in edge for other in edges_of_agent[agent] for end in other
                }
            conflicts.add_edges_from(
                (edge, other) for agent in nearby_agents for other in edges_of_agent[agent]
            )
        conflicts.remove_edges_from([(edge, edge) for edge in self.edges])
        is_small = len(self.edges) <= MOST_FOR_DSATUR
        colors = nx.greedy_color(conflicts, "DSATUR" if is_small else "largest_first")
        return np.array([colors[edge] for edge in self.edges], np.int64)

    def to_options(self) -> dict[str, Any]:
        """Return the options of `Network.with_links` that make these links, for files."""
        options: dict[str, Any] = {
            name: _one_if_equal(getattr(self, name)) for name in REQUIREMENTS
        }
        options |= {name: getattr(self, name) for name in FLAGS}
        options["compute"] = "measured" if self.compute is None else _one_if_equal(self.compute)
        options |= {"stragglers": _one_if_equal(self.stragglers)}
        options |= {"slow_chance": self.slow_chance, "slow_factor": self.slow_factor}
        return {name: value for name, value in options.items() if value is not None}

    def __repr__(self) -> str:
        """Describe the links briefly, as in "1 Mbit/s, 10 ms, loss 5 %"."""
        if not self.edges:
            return "none"
        parts = [_format_range(self.rate, "bit/s"), _format_range(self.latency, "s")]
        parts += [f"loss {_format_range(100 * self.loss, '%')}"] if self.loss.any() else []
        if self.has_resend_delay:
            parts.append(f"sent again after {_format_range(self.timeout, 's')}")
        if self.joules_per_bit is not None:
            parts.append(_format_range(self.joules_per_bit, "J/bit"))
        parts += ["half duplex"] if self.half_duplex else []
        parts += ["shared medium"] if self.shared_medium else []
        parts += ["pulled"] if self.pulled else []
        if self.compute is None:
            parts.append("computing as measured")
        elif self.compute.any():
            parts.append(f"computing {_format_range(self.compute, 's')}")
        if stragglers := int(np.sum(self.stragglers != 1)):
            parts.append(f"{stragglers} straggler{'s' * (stragglers != 1)}")
        if self.slow_chance:
            parts.append(f"{100 * self.slow_chance:g} % slow by {self.slow_factor:g}")
        return ", ".join(parts)


def update_links(
    before: Links | None,
    edges: Sequence[Edge],
    agents: int,
    changes: Mapping[str, Any],
    *,
    one_way: bool = False,
) -> Links:
    """Return `before` updated with the options in `changes` that are not None.

    Without `before`, `changes` needs a rate. `one_way`: edges are (sender, receiver).
    """
    zeros = ("latency", "loss", "compute", "timeout", "slow_chance")
    options_before: dict[str, Any] = dict.fromkeys(zeros, 0.0) | dict.fromkeys(FLAGS, False)
    options_before |= {"stragglers": 1.0, "slow_factor": 1.0}
    if before is not None:
        options_before = {
            f.name: getattr(before, f.name) for f in fields(before) if f.name not in NETWORK_FIELDS
        }
        options_before["compute"] = "measured" if before.compute is None else before.compute
    options = options_before | {name: value for name, value in changes.items() if value is not None}
    if "rate" not in options:
        raise ValueError("links need a rate in bit/s, as in with_links(rate=1e6)")
    for name in FLAGS:
        if not isinstance(options[name], bool):
            raise ValueError(f"{name} is {options[name]!r}; it must be true or false")
    if options["pulled"] and one_way:
        raise ValueError(
            "pulled messages are asked for over their link, and these go one way: leave pulled out"
        )
    chance, factor = options["slow_chance"], options["slow_factor"]
    if not (is_number(chance) and 0 <= chance <= 1):
        raise ValueError(f"slow_chance is {chance!r}; a chance lies between 0 and 1")
    if not (is_number(factor) and factor >= 1):
        raise ValueError(f"slow_factor is {factor!r}; it is how many times slower, 1 or more")
    values_of_edges = lambda name: (
        None if options.get(name) is None else edge_values(name, options[name], edges, one_way)
    )
    links = {name: values_of_edges(name) for name in REQUIREMENTS}
    measured = isinstance(options["compute"], str) and options["compute"] == "measured"
    return Links(
        tuple(edges),
        **links,  # type: ignore[arg-type]
        **{name: options[name] for name in FLAGS},
        compute=None if measured else agent_values("compute", options["compute"], agents, LEAST),
        stragglers=agent_values("stragglers", options["stragglers"], agents, ABOVE, 1.0),
        slow_chance=float(chance),
        slow_factor=float(factor),
        one_way=one_way,
    )


def _one_if_equal(values: Numbers | None) -> float | list[float] | None:
    """Return one number if all values are equal."""
    if values is None:
        return None
    return float(values[0]) if len(set(values.tolist())) == 1 else values.tolist()


def _format_range(values: Numbers, unit: str) -> str:
    """Format the smallest and the largest value with their unit: "1 to 4 Mbit/s"."""
    low, high = float(values.min()), float(values.max())
    power = math.floor(math.log10(high) / 3) if high and unit != "%" else 0
    prefix = PREFIXES.get(power, "")
    scale = 1000.0**power if prefix else 1.0
    ends = dict.fromkeys(f"{value / scale:.3g}" for value in (low, high))
    return f"{' to '.join(ends)} {prefix}{unit}"
