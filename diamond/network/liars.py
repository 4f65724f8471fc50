"""Agents that lie: their false messages, and the number of liars that a graph withstands.

A graph withstands b liars if, without any b agents, of any two groups of agents one has an agent
with more than b neighbours outside its group (Vaidya, Tseng and Liang, 2012): no group can then be
held apart from the rest by b lying neighbours of each of its agents. To test this takes time
exponential in the agents. It follows from

    lambda_2 > 3 b,    lambda_2 the second smallest eigenvalue of the graph's Laplacian

because a group of at most half of n agents has lambda_2 / 2 links per agent to the outside, and
without one agent lambda_2 falls by 1 at most (Fiedler, 1973). On a complete graph both say n > 3 b.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from diamond.network.spectrum import largest_eigenvalues

LieFunction = Callable[[Any, Any, Any], Any]  # (message, receiver, key) -> message
CONSTANT, BIAS, SPREAD, ENLARGEMENT, GAP = 1.0, 0.3, 1.0, 1000.0, 1.0  # sizes of the lies


@dataclass(frozen=True)
class Liar:
    """Agent that sends false messages, and otherwise runs like an honest one."""

    agent: int
    lie: str | LieFunction

    @property
    def name(self) -> str:
        """Short name for a line of text."""
        kind = self.lie if isinstance(self.lie, str) else getattr(self.lie, "__name__", "own")
        return f"liar({self.agent}, {kind})"

    @property
    def function(self) -> LieFunction:
        """Function (message, receiver, key) that returns the false message."""
        return LIE_FUNCTIONS[self.lie] if isinstance(self.lie, str) else self.lie


def lie_functions(liars: Sequence[Liar]) -> tuple[LieFunction, ...]:
    """Return all lies by name and those that the liars define; none without liars."""
    own = dict.fromkeys(liar.function for liar in liars if not isinstance(liar.lie, str))
    return (*LIE_FUNCTIONS.values(), *own) if liars else ()


def make_liar(agent: int, lie: str | LieFunction, agents: int) -> Liar:
    """Return the liar; checks its number and the name of its lie."""
    if not 0 <= agent < agents:
        raise ValueError(f"there is no agent {agent} to lie; the network has 0 to {agents - 1}")
    if not callable(lie) and lie not in LIE_FUNCTIONS:
        raise ValueError(f"no lie {lie!r}; there are {', '.join(LIE_FUNCTIONS)}, or a function")
    return Liar(agent, lie)


def tolerated_liars(graph: nx.Graph) -> int:
    """Return the largest b with lambda_2 > 3 b, which any b liars cannot break; 0 if directed."""
    if graph.is_directed() or len(graph) < 4:
        return 0
    laplacian = csr_array(nx.laplacian_matrix(graph, weight=None), dtype=np.float64)
    connectivity = -float(largest_eigenvalues(-laplacian, 2, 1e-7)[0])
    return max(0, math.ceil(connectivity / 3 - 1e-9) - 1)


def explain_undefended(graph: nx.Graph, liars: int) -> str:
    """Return why no rule of mixing withstands `liars` liars on this graph; "" if one may."""
    agents, least = len(graph), min(degree for _, degree in graph.degree)
    if agents <= 3 * liars:
        return f"of {agents} agents fewer than a third may lie"
    if least <= 2 * liars:
        return f"an agent has {least} neighbours, and needs {2 * liars + 1} or more"
    return ""


def describe_defense(network: Any) -> str:
    """Say in a sentence how many lying agents the network is known to withstand."""
    count = network.tolerated_liars
    if not count:
        return (
            "no liar can be survived on this graph: its links are too few (Laplacian eigenvalue "
            "lambda_2 of at most 3); a complete graph of four or more withstands one"
        )
    number = f"{count} liar{'s' * (count != 1)}"
    if network.defense is None:
        return (
            f"this graph can be defended against {number} (Laplacian eigenvalue lambda_2 above "
            f'{3 * count}), and is not: robust = "clipped", liars = {count} in the network\'s table'
        )
    rule, liars = network.defense
    return f"mixing is {rule} against {liars}; the graph can be defended against {number}"


def _map(function: Callable[[Any], Any]) -> LieFunction:
    """Return the lie that applies `function` to every array."""
    import jax

    return lambda message, receiver, key: jax.tree.map(function, message)


def _add_noise(message: Any, receiver: Any, key: Any) -> Any:
    """Add normal numbers, new in every exchange and the same for all receivers."""
    import jax

    leaves, structure = jax.tree.flatten(message)
    draw = lambda i, a: jax.random.normal(jax.random.fold_in(key, i), a.shape, a.dtype)
    return jax.tree.unflatten(structure, [a + SPREAD * draw(i, a) for i, a in enumerate(leaves)])


def _split_receivers(message: Any, receiver: Any, key: Any) -> Any:
    """Tell receivers with even numbers more, those with odd numbers less."""
    return _map(lambda a: a + GAP * (1 - 2 * (receiver % 2)))(message, receiver, key)


def _inflate_measurements(message: Any, receiver: Any, key: Any) -> Any:
    """Scale what is sent beside the variables, from which agents learn their step sizes."""
    if not (isinstance(message.average, dict) and "method" in message.average):
        return message
    scale = _map(lambda a: ENLARGEMENT * a)
    average = {
        name: part if name == "method" else scale(part, receiver, key)
        for name, part in message.average.items()
    }
    return message._replace(average=average)


LIE_FUNCTIONS: dict[str, LieFunction] = {
    "constant": lambda *inputs: _map(lambda a: 0 * a + CONSTANT)(*inputs),
    "bias": lambda *inputs: _map(lambda a: a + BIAS)(*inputs),
    "noise": _add_noise,
    "flipped": lambda *inputs: _map(lambda a: -a)(*inputs),
    "scaled": lambda *inputs: _map(lambda a: ENLARGEMENT * a)(*inputs),
    "two-faced": _split_receivers,
    "inflated": _inflate_measurements,
}
