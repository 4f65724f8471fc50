"""The network: a graph and its mixing matrix, or a periodic sequence of them."""

import math
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from diamond.core.exclusions import check_combination
from diamond.core.validation import as_int
from diamond.network import edge_usage, spectrum
from diamond.network.graph_numbering import Mixing, graph_of_edges, number_agents
from diamond.network.liars import Liar, LieFunction, explain_undefended, make_liar, tolerated_liars
from diamond.network.link_interruptions import exchange_every
from diamond.network.links.link_properties import Links, update_links
from diamond.network.links.link_values import AgentValues, Compute, EdgeValues
from diamond.network.mask_limits import DEFAULT_LIMIT, add_masks
from diamond.network.membership_epochs import Epoch, map_epochs
from diamond.network.mixing_weights import flooding_rounds, is_balanced
from diamond.network.network_summary import summarize
from diamond.network.spanning_tree import make_tree


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """Agents 0..m-1 on a connected graph, with the weights of their averages.

        s_i <- sum_j M_ij s_j,   M symmetric, rows and columns sum to 1, M_ij != 0 on edges

    Made by the functions of `diamond.network`. `weights` is M, including its diagonal. For one-way
    links, rows of `weights` sum to 1 (for averages) and columns of `shares` (for totals); arc (j,
    i) of the graph says that i hears j. A changing network uses its `sequence` in turn, one per
    round; its graph has the links of all rounds, and its weights are means.

    Examples:
        >>> network = diamond.network.ring(4)
        >>> network.agents, len(network.edges)
        (4, 4)
    """

    graph: nx.Graph
    weights: csr_array
    name: str
    mixing: str
    labels: tuple[Hashable, ...]
    draws: int = 1
    shares: csr_array | None = None  # None: M itself
    sequence: tuple["Network", ...] = ()
    channels: tuple[Any, ...] = ()  # channels of the messages; none: perfect links
    damping: Any = 1.0  # damping of the change, a number or a schedule
    links: Links | None = None  # None: communication takes no time
    defense: tuple[str, int] | None = None  # robust mixing, and the liars it expects
    lies: tuple[Liar, ...] = ()  # agents that send false messages, in a simulation
    mask_limit: float | None = None  # largest number in masked sums; None: messages are not masked
    base: "Network | None" = None  # constant network whose links are down in some rounds
    skipping: frozenset[int] = frozenset()  # agents that skip this round of a sequence
    epochs: tuple[Epoch, ...] = ()  # members and networks by round, if agents join or leave

    @staticmethod
    def from_edges(
        edges: Sequence[Sequence[int | str]],
        agents: int | Sequence[str] | None = None,
        mixing: Mixing = "laplacian",
    ) -> "Network":
        """Make a network of listed edges; as `diamond.network.from_edges`."""
        graph, labels = graph_of_edges(edges, agents)
        numbered, weights, rule = number_agents(graph, labels, mixing)
        return Network(numbered, weights, f"edges({len(labels)})", rule, labels)

    def every(self, rounds: int) -> "Network":
        """Return the same network with an exchange only in every `rounds`-th round (local steps).

        In the other rounds M is the identity: nothing is sent, and each agent moves alone.
        """
        return exchange_every(self, rounds)

    def through(self, *channels: Any, gamma: Any = None) -> "Network":
        """Return the same network with messages that pass through `channels`.

        Args:
            *channels: channels of `diamond.network.channels`, one by one or as a list.
            gamma: damping of the change, a number or a schedule, which keeps noise, delay and
                compression stable. None: the damping that the channels require.
        """
        from diamond.network.channels.channel import check_channels

        if len(channels) == 1 and isinstance(channels[0], list | tuple):
            channels = tuple(channels[0])
        if self.channels:
            raise ValueError(f"{self.name} has channels already; give all of them in one call")
        check_channels(channels)
        check_combination(replace(self, channels=channels).features, self.name)
        if gamma is None:
            gamma = min((channel.gamma for channel in channels), default=1.0)
        elif not callable(gamma) and not 0 < gamma <= 1:
            raise ValueError(f"gamma = {gamma}: the share of a change lies above 0, at most at 1")
        name = f"{self.name} through {', '.join(channel.name for channel in channels)}"
        return replace(self, channels=channels, damping=gamma, name=name if channels else self.name)

    def robust(self, rule: str = "clipped", liars: int = 1) -> "Network":
        """Return the same network with agents that distrust what they receive.

        Args:
            rule: "clipped", self-centred clipping of differences, or "trimmed", a mean without the
                extreme numbers (`diamond.network.mixing.robust_mixer` has the formulas).
            liars: most agents that may lie; more of them cost accuracy.

        Returns:
            The network with robust mixing, for methods that send no trackers.
        """
        if rule not in ("clipped", "trimmed"):
            raise ValueError(f"no robust mixing {rule!r}; there are 'clipped' and 'trimmed'")
        if as_int("liars", liars) < 1:
            raise ValueError(f"liars = {liars}: robust mixing expects one or more")
        check_combination(self.features | {"robust mixing": True}, self.name)
        if self.epochs:
            return map_epochs(self, lambda network: network.robust(rule, liars))
        expected = f"{liars} liar{'s' * (liars != 1)}"
        if reason := explain_undefended(self.graph, liars):
            raise ValueError(f"{self.name} cannot be defended against {expected}: {reason}")
        if self.tolerated_liars < liars:
            warnings.warn(
                f"{self.name} is known to withstand {self.tolerated_liars} liars, not {liars}: add "
                f"links until the second eigenvalue of its Laplacian exceeds {3 * liars}",
                RuntimeWarning,
                stacklevel=2,
            )
        name = f"{self.name}, {rule} against {expected}"
        return replace(self, defense=(rule, liars), name=name)

    def with_liar(self, agent: int, lie: str | LieFunction) -> "Network":
        """Return the same network with an agent that sends false messages, for simulations.

        Args:
            agent: number of the liar, which otherwise runs like an honest agent.
            lie: "constant", "bias", "noise", "flipped", "scaled", "two-faced", "inflated"
                (`diamond.network.liars`), or a function (message, receiver, key) -> message.
        """
        check_combination(self.features | {"liars": True}, self.name)
        liar = make_liar(agent, lie, self.agents)
        return replace(self, lies=(*self.lies, liar), name=f"{self.name}, {liar.name}")

    def masked(self, limit: float = DEFAULT_LIMIT) -> "Network":
        """Return the same network with messages of which a receiver sees only the weighted sum.

        Sites hide single messages by masks that cancel in the sum; a simulation has the same
        fixed-point sums (`diamond.network.mixing.fixed_point` has formulas and errors).

        Args:
            limit: largest number that an agent may send; rounded up to a power of two. The
                smallest difference that is sent is `limit` / 2^61.

        Returns:
            The network with masked sums, for methods without open numbers.
        """
        return add_masks(self, limit)

    @property
    def features(self) -> dict[str, bool]:
        """Which features of `diamond.core.exclusions` it has."""
        is_of_any = lambda name: any(getattr(channel, name) for channel in self.channels)
        compressions = [channel for channel in self.channels if channel.compresses]
        return {
            "channels": bool(self.channels),
            "inexact channels": any(c.tries is None for c in self.channels),
            "lossy channels": is_of_any("breaks_links"),
            "channels with memory": is_of_any("static_only"),
            "a second compression": len(compressions) > 1,
            "compression": bool(compressions),
            "compressed differences": any(channel.static_only for channel in compressions),
            "robust mixing": self.defense is not None,
            "liars": bool(self.lies),
            "masked sums": self.mask_limit is not None,
            "changing members": bool(self.epochs),
            "timed links": self.links is not None,
            "changing links": bool(self.sequence) and self.base is None,
            "one-way links": self.shares is not None,
            "interrupted links": self.base is not None,
            "skipping agents": any(phase.skipping for phase in self.phases),
        }

    @cached_property
    def tolerated_liars(self) -> int:
        """Number of liars that robust mixing on this graph is known to withstand."""
        return tolerated_liars(self.graph) if self.kind == "symmetric" else 0

    def with_damped_weights(self, *rounds: int) -> "Network":
        """Return the network with M replaced by (1 - gamma) I + gamma M.

        If gamma is a schedule, its smallest value in these `rounds` is used.
        """
        gamma = (
            min(map(float, map(self.damping, rounds))) if callable(self.damping) else self.damping
        )
        if gamma == 1:
            return self
        damp = lambda m: csr_array((1 - gamma) * eye_array(self.agents) + gamma * m)
        shares = None if self.shares is None else damp(self.shares)
        sequence = tuple(
            replace(phase, damping=gamma).with_damped_weights() for phase in self.sequence
        )
        network = replace(self, weights=damp(self.weights), shares=shares, sequence=sequence)
        return replace(network, damping=1.0)

    @property
    def agents(self) -> int:
        """Number of agents, m."""
        return len(self.labels)

    @property
    def title(self) -> str:
        """Name with a description of the links, for tables and legends."""
        return self.name if self.links is None else f"{self.name}, {self.links!r}"

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Return M as a dense (m, m) array."""
        return self.weights.toarray()

    @property
    def phases(self) -> tuple["Network", ...]:
        """Networks of rounds 0, 1, ..., which repeat; a fixed network has one phase."""
        return self.sequence or (self,)

    @cached_property
    def kind(self) -> str:
        """Symmetry class of the network, which methods check.

        "symmetric" (and constant), "balanced" (rows and columns sum to 1 in every round), or
        "directed".
        """
        if not self.sequence and self.shares is None:
            return "symmetric"
        balanced = all(is_balanced(phase.weights, phase.shares) for phase in self.phases)
        return "balanced" if balanced else "directed"

    @cached_property
    def lam(self) -> float:
        """Contraction of the disagreement in one round: max(|lambda_2|, |lambda_m|).

        For a directed or changing network, |lambda_2| of the product over a period, to the power 1
        / period; of `weights` or of `shares`, whichever is larger.
        """
        if self.kind == "symmetric":
            return spectrum.contraction(self.weights)
        rate = spectrum.product_contraction([phase.weights for phase in self.phases])
        if self.kind == "directed":
            columns = [_shares(phase).T.tocsr() for phase in self.phases[::-1]]
            rate = max(rate, spectrum.product_contraction(columns))
        return rate ** (1 / len(self.phases))

    @cached_property
    def perron(self) -> NDArray[np.float64]:
        """Left Perron vector: the weight of each agent's start in the consensus value.

        pi^T R = pi^T,  R the product over a period,  sum_i pi_i = 1;  1 / m if balanced
        """
        if self.kind != "directed":
            return np.full(self.agents, 1 / self.agents)
        return spectrum.perron_vector([phase.weights for phase in self.phases])

    @cached_property
    def column_perron_vector(self) -> NDArray[np.float64]:
        """Share of a total that each agent has in the limit: C c = c, sum_i c_i = 1."""
        if self.kind != "directed":
            return np.full(self.agents, 1 / self.agents)
        return spectrum.perron_vector([_shares(phase).T.tocsr() for phase in self.phases[::-1]])

    @cached_property
    def min_eigenvalue(self) -> float:
        """Smallest eigenvalue of M."""
        return spectrum.smallest_eigenvalue(self.weights)

    @property
    def step_inflation(self) -> float:
        """Ratio of a tracked step to its mean over the agents: m sum_i pi_i c_i."""
        return float(self.agents * self.perron @ self.column_perron_vector)

    @cached_property
    def tracking_limits(self) -> dict[str, float]:
        """Largest step times curvature with stable tracking, by the order of mixing."""
        if self.kind == "symmetric":
            return {"atc": math.inf, "paper": math.inf}  # curvature alone sets a tighter limit
        rows = [phase.weights for phase in self.phases]
        columns = [_shares(phase) for phase in self.phases]
        return {
            order: spectrum.tracking_limit(rows, columns, order == "paper")
            for order in ("atc", "paper")
        }

    spanning_tree = cached_property(make_tree)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Edges (i, j), i < j, in order; (sender, receiver) in a directed graph."""
        if self.graph.is_directed():
            return sorted(self.graph.edges)
        return sorted((min(edge), max(edge)) for edge in self.graph.edges)

    count_messages_by_edge = edge_usage.count_messages_by_edge
    count_messages = edge_usage.count_messages
    active_edges = property(edge_usage.active_edges)

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Number of neighbours of each agent, without itself."""
        return np.diff(self.weights.indptr).astype(np.int64) - 1

    @cached_property
    def diameter(self) -> int:
        """Largest number of edges between two agents.

        For a changing network, the number of rounds from round 0 until information of every agent
        has reached all agents.
        """
        if self.sequence:
            return flooding_rounds([phase.weights for phase in self.sequence])
        return int(nx.diameter(self.graph))

    def rounds_to_mix(self, tolerance: float = 1e-3) -> int:
        """Return the rounds until the disagreement has shrunk to `tolerance` times its start.

        ceil(log(tolerance) / log(lam)),   and 0 for one agent
        """
        if not 0 < tolerance < 1:
            raise ValueError(f"tolerance is {tolerance}; it must lie between 0 and 1")
        if self.agents == 1:
            return 0
        # The averaging matrix has lam = 0 up to rounding, and still needs one round.
        return max(1, math.ceil(math.log(tolerance) / math.log(max(self.lam, 1e-300))))

    def with_links(
        self,
        rate: EdgeValues | None = None,
        latency: EdgeValues | None = None,
        loss: EdgeValues | None = None,
        joules_per_bit: EdgeValues | None = None,
        *,
        timeout: EdgeValues | None = None,
        half_duplex: bool | None = None,
        shared_medium: bool | None = None,
        pulled: bool | None = None,
        compute: Compute | None = None,
        stragglers: AgentValues | None = None,
        slow_chance: float | None = None,
        slow_factor: float | None = None,
    ) -> "Network":
        """Return the same network with links, on which runs count time and energy.

        Runs then record `network_seconds`, and `joules` if an energy is given. A value per link is
        one number, a list in the order of `edges`, or {(i, j): number, "other": number}. Options
        that are None keep their value. `diamond.network.links` has the formulas.

        Args:
            rate: bit/s, per link; required the first time.
            latency: seconds, per link (0).
            loss: share of packets that are lost, per link (0).
            joules_per_bit: energy, per link.
            timeout: seconds until a lost packet is sent again, per link.
            half_duplex: an agent communicates with one neighbour at a time.
            shared_medium: and nobody else within range of the two does.
            pulled: each message is requested first.
            compute: seconds per agent and round, one number or one each; "measured" on this
                machine.
            stragglers: {agent: slowdown factor}.
            slow_chance: probability that an agent is slow in a round.
            slow_factor: slowdown factor of a slow agent.
        """
        options = {name: value for name, value in locals().items() if name != "self"}
        is_directed = self.graph.is_directed()
        links = update_links(self.links, self.edges, self.agents, options, one_way=is_directed)
        return replace(self, links=links)

    __repr__ = summarize


def _shares(phase: Network) -> csr_array:
    return phase.weights if phase.shares is None else phase.shares
