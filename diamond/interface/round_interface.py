"""Interface between algorithms and engine: a round as one agent sees it."""

from typing import Any, NamedTuple, Protocol

from ..core.cost_counter import Cost
from ..core.pytrees import Tree
from ..core.sampling import Sample
from ..problem import Objectives
from ..schedules.step_schedules import Number

State = Any  # a pytree with at least the fields x and y
Estimate = Any  # a pytree: result of the gradient work of a stage


# Kinds of networks, each a special case of the next: `Network.kind`.
NETWORKS = ("symmetric", "balanced", "directed")


class Message(NamedTuple):
    """Message of an agent to its neighbours, or the change that the network makes to it.

        sum_j M_ij (s_j - s_i)

    is a sum over links; the term of a link that is down is missing. The changes sum to 0 over the
    agents. A method declares which part is averaged and which must preserve its total; on
    undirected links, M serves for both. On a directed network the receiver weighs averages, whose
    changes then do not sum to 0, and the sender divides totals, whose changes always do.

    A stage may send `mean` instead: its change is no change, but the exact mean over all agents,

        (1 / m) sum_j mean_j,

    summed along a spanning tree and returned to every agent in the same bits.
    """

    average: Tree = None  # x, or a common y
    total: Tree = None  # trackers
    mean: Tree = None  # replaced by its exact mean over all agents; the other parts are None


class Stage(Protocol):
    """Three pure functions around one exchange, none of which communicates.

        estimate = estimate(problem, state, t, sample)        all gradient work; needs no neighbour
        sent     = outgoing(state, estimate, t)               message to the neighbours
        change   = sum_j M_ij (sent_j - sent_i)               change by the network, or exact mean
        state    = update(state, estimate, sent, change, t)   a few vector operations

    is what the engine runs. `problem` holds this agent's rows only, `sample` all that is random. A
    message that `sends_before_gradient` does not depend on the estimate, so that it can travel
    while gradients are computed. A message without arrays is not sent: such a stage is a
    local step. Optional: `move_local_variables(state, estimate, t)` moves the variables that are
    not sent, before the message, and returns the state and the rest of the estimate. A stage that
    `ignores_samples` gets None; agents of a stage that `takes_turns` work one after another on a
    CPU, because their work differs in length.
    """

    @property
    def repeats(self) -> int:
        """Exchanges of the stage in a round, each with its own sample."""

    @property
    def hessian_batches(self) -> int:
        """Blocks of training rows per sample, beyond zeta and zeta_0."""

    @property
    def sends_before_gradient(self) -> bool:
        """Whether `outgoing` ignores the estimate."""

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]:
        """Compute all gradients of the stage, and their oracle calls."""

    def outgoing(self, state: State, estimate: Estimate, t: Number) -> Message:
        """Return the message to the neighbours."""

    def update(
        self, state: State, estimate: Estimate, sent: Message, change: Message, t: Number
    ) -> State:
        """Return the next state from the own message and the change by the network."""


class Algorithm(Protocol):
    """Start of an agent, and the stages of its round; most algorithms have one stage.

    A pytree whose leaves are its numbers, which are arguments of the compiled program. Optional:
    `specialize(problem)` returns the algorithm specialized for the problem;
    `without_exact_means(obstacle)` the algorithm for networks and settings that exclude them;
    `is_finished(state)` says whether all agents have ended, after which no rounds are made, and
    `describe_end(state)` why; `with_scaled_steps(factor)` returns it with smaller steps, without
    which a diverging run can only stop; `networks` is the widest kind of network on which it is
    correct, one of `NETWORKS`, by default "symmetric".
    """

    @property
    def lower_levels(self) -> tuple[str, ...]:
        """Supported kinds of lower level: "personal", "common", "none"."""

    @property
    def batch(self) -> int:
        """Rows in a mini-batch."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages of a round, in their order."""

    def schedule_values(self, t: Number) -> dict[str, Number]:
        """Return the step sizes and weights of round t."""

    def init(self, x: Tree, y: Tree) -> State:
        """Return the state of an agent at the start."""


def is_finished(algorithm: Algorithm, state: State) -> Any:
    """Return whether the algorithm has ended; most never end."""
    return algorithm.is_finished(state) if hasattr(algorithm, "is_finished") else False
