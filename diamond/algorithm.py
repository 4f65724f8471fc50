"""The one interface between algorithms and runtimes: a round as one agent sees it."""

from typing import Any, Protocol

from .cost import Cost
from .problem import Objectives
from .sampling import Sample
from .schedule import Number
from .tree import Tree

State = Any  # a pytree with at least the fields x and y
Message = Any  # a pytree of arrays, of the same shapes in every round
Estimate = Any  # a pytree: what the gradient work of a round came to


class Algorithm(Protocol):
    """Four pure functions, none of which communicates. In every round, the runtime does

        estimate = estimate(problem, state, t, sample)      all gradient work; needs no neighbour
        message  = outgoing(state, estimate, t)             what I tell my neighbours
        mixed    = sum_j M[i, j] message[j]                 what the network makes of it
        state    = update(state, estimate, mixed, t)        a few vector operations

    `problem` holds this agent's rows only, `sample` all that is random. `t` stands beside the
    state, not in it: it is the same for all agents, so a branch on it stays a branch. Where the
    message is `early`, it does not depend on the estimate (which may be None then), so that it can
    travel while the gradients are computed. An algorithm is a pytree whose leaves are its numbers:
    they are arguments of the compiled program.
    """

    @property
    def batch(self) -> int: ...  # rows in a mini-batch

    @property
    def links(self) -> int: ...  # blocks of training rows in a sample, beyond zeta and zeta_0

    @property
    def early(self) -> bool: ...  # whether outgoing leaves the estimate alone

    def numbers(self, t: Number) -> dict[str, Number]: ...  # step sizes and weights of round t

    def init(self, x: Tree, y: Tree) -> State: ...

    def outgoing(self, state: State, estimate: Estimate, t: Number) -> Message: ...

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]: ...

    def update(self, state: State, estimate: Estimate, mixed: Message, t: Number) -> State: ...
