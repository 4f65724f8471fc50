"""The one interface between algorithms and engine: a round as one agent sees it."""

from typing import Any, NamedTuple, Protocol

from ..core.cost import Cost
from ..core.sampling import Sample
from ..core.tree import Tree
from ..numbers.schedule import Number
from ..problem import Objectives

State = Any  # a pytree with at least the fields x and y
Estimate = Any  # a pytree: what the gradient work of a stage came to


# What a network can be, each a case of the next: `Network.kind`.
NETWORKS = ("symmetric", "balanced", "directed")


class Message(NamedTuple):
    """What an agent tells its neighbours, or the change that the network makes to it,

        sum_j M_ij (s_j - s_i)

    a sum over links: of one that is down, the term is missing. The changes add up to 0 over the
    agents. A method says which part agents are to agree on and which must keep its total; where
    links go both ways, M serves for both. On a directed network the receiver weighs averages,
    whose changes then do not add up to 0, and the sender divides totals, whose changes always do.
    """

    average: Tree = None  # x, or a common y
    total: Tree = None  # trackers


class Stage(Protocol):
    """Three pure functions around one exchange, none of which communicates. The runtime does

        estimate = estimate(problem, state, t, sample)        all gradient work; needs no neighbour
        told     = outgoing(state, estimate, t)               what I tell my neighbours
        change   = sum_j M_ij (told_j - told_i)               what the network makes of it
        state    = update(state, estimate, told, change, t)   a few vector operations

    `problem` holds this agent's rows only, `sample` all that is random. Where the message is
    `early`, it does not depend on the estimate, so that it can travel while the gradients are
    computed. A message without arrays is not sent: such a stage is a step of one's own.
    """

    @property
    def times(self) -> int: ...  # how often in a row, each time on a sample of its own

    @property
    def links(self) -> int: ...  # blocks of training rows in a sample, beyond zeta and zeta_0

    @property
    def early(self) -> bool: ...  # whether outgoing leaves the estimate alone

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]: ...

    def outgoing(self, state: State, estimate: Estimate, t: Number) -> Message: ...

    def update(
        self, state: State, estimate: Estimate, told: Message, change: Message, t: Number
    ) -> State: ...


class Algorithm(Protocol):
    """Where an agent starts, and the stages of its round; most have one.

    A pytree whose leaves are its numbers: they are arguments of the compiled program. It may have
    `suited(problem)`, which gives the algorithm as it is for that problem, and `shrunk(factor)`,
    the same with smaller steps, without which a run that diverges can only stop. `networks` is the
    widest kind of network that it is right on, one of `NETWORKS`; without it, "symmetric".
    """

    @property
    def solves(self) -> tuple[str, ...]: ...  # lower levels: "personal", "common", "none"

    @property
    def batch(self) -> int: ...  # rows in a mini-batch

    @property
    def stages(self) -> tuple[Stage, ...]: ...

    def numbers(self, t: Number) -> dict[str, Number]: ...  # step sizes and weights of round t

    def init(self, x: Tree, y: Tree) -> State: ...
