"""Interface between algorithms and engine: a round as one agent sees it."""

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.cost_counter import Cost
from ..core.pytrees import Number, Tree
from ..core.sampling import Sample
from ..problem import Objectives, Problem
from ..schedules.deferred import Deferred
from ..schedules.learned import learned_names

State = Any  # a pytree with at least the fields x and y; others by `state_part`
Estimate = Any  # a pytree: result of the gradient work of a stage

# Kinds of networks, each a special case of the next: `Network.kind`.
NETWORKS = ("symmetric", "balanced", "directed")


def state_part(state: State, name: str) -> Any:
    """Return a part that the run reads of states that have it; None if this state has none.

    Parts are z; the directions p of x and v of y; the tracker u of x; what a method with learned
    steps knows, step and curvature; and best, the point of the best evaluation.
    """
    return getattr(state, name, None)


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


class Stage:
    """Three pure functions around one exchange, none of which communicates.

        estimate = estimate(problem, state, t, sample)        all gradient work; needs no neighbour
        sent     = outgoing(state, estimate, t)               message to the neighbours
        change   = sum_j M_ij (sent_j - sent_i)               change by the network, or exact mean
        state    = update(state, estimate, sent, change, t)   a few vector operations

    is what the engine runs. `problem` holds this agent's rows only, `sample` all that is random. A
    message that `sends_before_gradient` does not depend on the estimate, so that it can travel
    while gradients are computed. A message without arrays is not sent: such a stage is a
    local step. Required are the members that have no default.
    """

    if TYPE_CHECKING:

        @property
        def repeats(self) -> int:
            """Exchanges of the stage in a round, each with its own sample."""

        @property
        def hessian_batches(self) -> int:
            """Blocks of training rows per sample, beyond zeta and zeta_0."""

        @property
        def sends_before_gradient(self) -> bool:
            """Whether `outgoing` ignores the estimate."""

    @property
    def ignores_samples(self) -> bool:
        """Whether the stage draws nothing, so that its sample is None."""
        return False

    @property
    def takes_turns(self) -> bool:
        """Whether agents work one after another on a CPU, because their work differs in length."""
        return False

    def estimate(
        self, problem: Objectives, state: State, t: Number, sample: Sample
    ) -> tuple[Estimate, Cost]:
        """Compute all gradients of the stage, and their oracle calls."""
        raise NotImplementedError

    def move_local_variables(
        self, state: State, estimate: Estimate, t: Number
    ) -> tuple[State, Estimate]:
        """Move the variables that are not sent, before the message.

        Return the state and the rest of the estimate; by default nothing moves before the message.
        """
        return state, estimate

    def outgoing(self, state: State, estimate: Estimate, t: Number) -> Message:
        """Return the message to the neighbours."""
        raise NotImplementedError

    def update(
        self, state: State, estimate: Estimate, sent: Message, change: Message, t: Number
    ) -> State:
        """Return the next state from the own message and the change by the network."""
        raise NotImplementedError


class Method:
    """Start of an agent, and the stages of its round; most methods have one stage.

    A pytree whose leaves are its numbers, which are arguments of the compiled program. Required are
    the members that have no default; the default of another says what its absence means.
    """

    if TYPE_CHECKING:

        @property
        def lower_levels(self) -> tuple[str, ...]:
            """Supported kinds of lower level: "personal", "common", "none"."""

        @property
        def batch(self) -> int:
            """Rows in a mini-batch."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages of a round, in their order."""
        raise NotImplementedError

    def schedule_values(self, t: Number) -> dict[str, Number]:
        """Return the step sizes and weights of round t."""
        raise NotImplementedError

    def init(self, x: Tree, y: Tree) -> State:
        """Return the state of an agent at the start."""
        raise NotImplementedError

    @property
    def networks(self) -> str:
        """Widest kind of network on which the method is correct, one of `NETWORKS`."""
        return NETWORKS[0]

    @property
    def needs_strong_convexity(self) -> bool:
        """Whether the method is defined only for a strongly convex lower level."""
        return False

    @property
    def hypergradient(self) -> Any:
        """Estimator of the hypergradient; None: the method has none, or none that may change."""
        return None

    @property
    def privacy(self) -> Any:
        """Private estimator of the directions; None: messages are not private."""
        return None

    @property
    def checks(self) -> tuple[Deferred, ...]:
        """Checks that the run makes where it estimates numbers, beside those of the method."""
        return ()

    @property
    def learns_alpha(self) -> bool:
        """Whether the step size of x is learned during the run."""
        return "alpha" in learned_names(self)

    @property
    def ends_by_itself(self) -> bool:
        """Whether the method knows an end (`is_finished`); else it runs all rounds."""
        return False

    def specialize(self, problem: Problem) -> "Method":
        """Return the method for this problem; by default it is the same for all."""
        return self

    def without_exact_means(self, obstacle: str) -> "Method":
        """Return the method for a run that has no exact means, for this reason in a few words."""
        return self

    def with_robust_mixing(self) -> "Method":
        """Return the method for a network with robust mixing, which does not preserve sums."""
        return self

    def with_scaled_steps(self, factor: Number) -> "Method | None":
        """Return the method with steps `factor` times as long.

        None, the default: its steps cannot be made shorter, so that a run that diverges stops.
        """
        return None

    def with_estimator(self, estimator: Any) -> "Method":
        """Return the method with this private estimator; only for methods with `privacy`."""
        raise NotImplementedError

    def learned_values(self, state: State) -> dict[str, Any]:
        """Return what the method learns, per agent, as columns of the history; by default none."""
        return {}

    def is_finished(self, state: State) -> Any:
        """Return whether all agents have ended, after which no rounds are made."""
        return False

    def describe_end(self, state: State) -> str:
        """Return why the method has ended, or "" if it has not."""
        return ""

    def restart_trackers(self, state: State) -> State | None:
        """Return the state after a change of members (`interface.member_changes`).

        None, the default: the state has no meaning after members change.
        """
        return None


Algorithm = Method  # the earlier name
