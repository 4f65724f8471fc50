"""Communication rules: how a variable s moves along its direction d, in one exchange.

              sends             becomes, with c the change of the sent value by the network
    local     nothing           s - a d
    gossip    s - a d           sent + c                              or, in the paper's order:
              s                 s + c - a d
    tracking  s - a u, u        both + c;  u = u' + d - d'            or, in the paper's order:
              s, u'             s + c - a u;  u = u' + c + d - d'
    diffusion s - a d - D       sent + c;  D - c
    extra     s                 s + c - a d - D;  D - c / 2
    push      q - a d, w        both + c;  s = q / w
    push gt   q - a u, w, u     all + c;   s = q / w;  u = u' + d - d'

a is the step, ' the previous round. D starts at 0 and always sums to 0 over the agents, because the
two ends of a link change it oppositely. The mean of s moves along the mean of d in all rules but
`local`; gossip alone has a bias of order a if agents differ. `prox` maps s - a d (or s - a u) to
the proximal point of the problem's regularizer before it is sent. If the variable has an optimizer,
a times its update replaces -a d (or -a u); the optimizer sees d (or u), and s as its parameters.

s is an average, u a total: on a directed network, tracking is AB (push-pull), correct on any
network. The push rules send totals only, q and w, which the sender divides (push-sum): w, which
starts at 1, is the push-sum weight. Gossip is correct for balanced weights; the two rules with D
for symmetric, constant weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ...auto.adaptive_optimizers import Optimizer
from ...core import pytrees
from ...core.exclusions import check_combination
from ...core.pytrees import Number, Tree
from ...interface.round_interface import Message
from .variables import STATIC

Order = Literal["paper", "atc"]
Prox = Callable[[Tree, Number], Tree]


class CommunicationInputs(NamedTuple):
    """Inputs of a communication rule."""

    s: Tree
    memory: Any  # state of the rule between rounds
    d: Tree  # None in `outgoing` of a rule that sends before the gradient
    previous_d: Tree  # d of the previous round, if the rule needs it
    step: Number
    optimizer: Optimizer | None = None  # of s
    optimizer_state: Any = None

    def descend(self, direction: Tree, base: Tree) -> Tree:
        """Return `base` after the step along `direction`."""
        if self.optimizer is None:
            return pytrees.axpy(-self.step, direction, base)
        update, _ = self.optimizer.update(direction, self.optimizer_state, self.s)
        return pytrees.axpy(self.step, update, base)

    def prox_step(self, direction: Tree) -> Number:
        """Return the step size that a prox sees."""
        if self.optimizer is None or not self.optimizer.has_step_size:
            return self.step
        return self.step * self.optimizer.step_size(direction, self.optimizer_state, self.s)


def _step_along(
    inputs: CommunicationInputs, direction: Tree, prox: Prox | None, relax: Number | None
) -> Tree:
    """Return s - a d, or its prox; only the share `relax` of the step is made."""
    stepped = inputs.descend(direction, inputs.s)
    if prox is not None:
        stepped = prox(stepped, inputs.prox_step(direction))
    return _relax(inputs, stepped, relax)


def _relax(inputs: CommunicationInputs, stepped: Tree, relax: Number | None) -> Tree:
    """Return the point at the share `relax` of the way from s."""
    return (
        stepped if relax is None else pytrees.axpy(relax, pytrees.sub(stepped, inputs.s), inputs.s)
    )


class CommunicationRule:
    """Defaults of a rule: sends one vector, after the direction is known, without a tracker."""

    vectors: ClassVar[int] = 1  # number of vectors sent
    share_of_step: ClassVar[float] = 1.0  # step of a y with this rule, relative to 1 / (1.5 L)
    needs_previous_direction: ClassVar[bool] = False  # whether it needs the previous d
    takes_prox: ClassVar[bool] = False  # whether it has a field `prox`

    @property
    def networks(self) -> str:
        """Widest kind of network on which the rule is correct."""
        return "directed"

    @property
    def sends_before_gradient(self) -> bool:
        """Whether it sends before d is known."""
        return False

    def with_prox(self, prox: Prox) -> "CommunicationRule":
        """Return the rule that ends in this prox; only for rules that take one."""
        return replace(self, prox=prox)  # type: ignore[type-var]

    def init(self, s: Tree) -> Any:
        """Return the state of the rule before round 0."""
        return None

    def restart(self, memory: Any, previous_d: Tree) -> Any:
        """Return the state of the rule after a change of members; see `member_changes`."""
        return memory

    def tracker(self, memory: Any) -> Tree | None:
        """Return the network's mean direction of the previous round, if the rule tracks it."""
        return None

    def outgoing(self, inputs: CommunicationInputs) -> Message:
        """Return the parts of the message for this variable."""
        raise NotImplementedError

    def incoming(
        self, inputs: CommunicationInputs, sent: Message, change: Message
    ) -> tuple[Tree, Any]:
        """Return the variable after the step, and the next state of the rule."""
        raise NotImplementedError

    def step_direction(self, inputs: CommunicationInputs, sent: Message, change: Message) -> Tree:
        """Return the direction of the step: d, or the tracker u."""
        return inputs.d


@pytrees.pytree
@dataclass(frozen=True)
class Local(CommunicationRule):
    """Local step s - a d without communication."""

    prox: Any = None
    takes_prox = True
    vectors = 0
    sends_before_gradient = True

    def outgoing(self, inputs: CommunicationInputs) -> Message:
        return Message()

    def incoming(
        self, inputs: CommunicationInputs, sent: Message, change: Message
    ) -> tuple[Tree, Any]:
        return _step_along(inputs, inputs.d, self.prox, None), None


@pytrees.pytree
@dataclass(frozen=True)
class Gossip(CommunicationRule):
    """Gossip, as in D-SGD (Nedic and Ozdaglar, 2009; Lian et al., 2017)."""

    order: Order = field(default="atc", metadata=STATIC)
    relax: Number | None = None
    prox: Any = None
    takes_prox = True
    networks = "balanced"

    @property
    def sends_before_gradient(self) -> bool:
        return self.order == "paper"

    def outgoing(self, inputs: CommunicationInputs) -> Message:
        return Message(
            inputs.s
            if self.sends_before_gradient
            else _step_along(inputs, inputs.d, self.prox, self.relax)
        )

    def incoming(
        self, inputs: CommunicationInputs, sent: Message, change: Message
    ) -> tuple[Tree, Any]:
        moved = pytrees.add(sent.average, change.average)
        if self.sends_before_gradient:
            moved = _relax(inputs, inputs.descend(inputs.d, moved), self.relax)
        return moved, None


@pytrees.pytree
@dataclass(frozen=True)
class Tracking(CommunicationRule):
    """Gradient tracking u_t = sum_j M_ij u_{j,t-1} + d_t - d_{t-1} (8).

    The state is u_{t-1} in the paper's order, and sum_j M_ij u_{j,t-1} in the other. `relax` < 1:
    only that share of the step of s is made.
    """

    order: Order = field(default="paper", metadata=STATIC)
    relax: Number | None = None
    prox: Any = None
    takes_prox = True
    vectors = 2
    share_of_step = 0.5
    needs_previous_direction = True

    @property
    def sends_before_gradient(self) -> bool:
        return self.order == "paper"

    @property
    def networks(self) -> str:
        """Widest kind of network: a prox with unequal steps of the agents changes the limit."""
        return "directed" if self.prox is None else "balanced"

    def init(self, s: Tree) -> Any:
        return pytrees.zeros(s)

    def restart(self, memory: Any, previous_d: Tree) -> Any:
        return previous_d

    def tracker(self, memory: Any) -> Tree | None:
        return memory

    def outgoing(self, inputs: CommunicationInputs) -> Message:
        if self.sends_before_gradient:
            return Message(inputs.s, inputs.memory)
        u = pytrees.add(inputs.memory, pytrees.sub(inputs.d, inputs.previous_d))
        return Message(_step_along(inputs, u, self.prox, self.relax), u)

    def step_direction(self, inputs: CommunicationInputs, sent: Message, change: Message) -> Tree:
        u = inputs.memory
        if self.sends_before_gradient:
            u = pytrees.add(sent.total, change.total)
        return pytrees.add(u, pytrees.sub(inputs.d, inputs.previous_d))

    def incoming(
        self, inputs: CommunicationInputs, sent: Message, change: Message
    ) -> tuple[Tree, Any]:
        moved, u, _ = pytrees.add(sent, change)
        if not self.sends_before_gradient:
            return moved, u
        u = pytrees.add(u, pytrees.sub(inputs.d, inputs.previous_d))
        return _relax(inputs, inputs.descend(u, moved), self.relax), u


@pytrees.pytree
@dataclass(frozen=True)
class Diffusion(CommunicationRule):
    """Exact diffusion (Yuan et al., 2019; NIDS, D2), with the matrix I + share (M - I).

    An eigenvalue l of that matrix gives r^2 - 2 l r + l: stable for l > -1/3.
    """

    share: Any = 1.0
    networks = "symmetric"

    def init(self, s: Tree) -> Any:
        return pytrees.zeros(s)

    def restart(self, memory: Any, previous_d: Tree) -> Any:
        return pytrees.zeros(memory)

    def outgoing(self, inputs: CommunicationInputs) -> Message:
        return Message(pytrees.sub(inputs.descend(inputs.d, inputs.s), inputs.memory))

    def incoming(
        self, inputs: CommunicationInputs, sent: Message, change: Message
    ) -> tuple[Tree, Any]:
        c = pytrees.scale(self.share, change.average)
        return pytrees.add(sent.average, c), pytrees.sub(inputs.memory, c)


@pytrees.pytree
@dataclass(frozen=True)
class Extra(CommunicationRule):
    """EXTRA (Shi et al., 2015), with the matrix I + share (M - I); it sends before it computes.

    An eigenvalue l of that matrix gives r^2 - (1 + l) r + (1 + l) / 2: stable for l > -5/3, thus on
    any mixing matrix. On a curvature L, steps are stable below (5 + 3 l) / (4 L) (Li and Yan,
    2021).
    """

    share: Any = 1.0
    share_of_step = 0.5
    networks = "symmetric"
    sends_before_gradient = True

    def init(self, s: Tree) -> Any:
        return pytrees.zeros(s)

    def restart(self, memory: Any, previous_d: Tree) -> Any:
        return pytrees.zeros(memory)

    def outgoing(self, inputs: CommunicationInputs) -> Message:
        return Message(inputs.s)

    def incoming(
        self, inputs: CommunicationInputs, sent: Message, change: Message
    ) -> tuple[Tree, Any]:
        c = pytrees.scale(self.share, change.average)
        moved = pytrees.sub(inputs.descend(inputs.d, pytrees.add(inputs.s, c)), inputs.memory)
        return moved, pytrees.axpy(-0.5, c, inputs.memory)


class PushSumState(NamedTuple):
    """State of push-sum: s = q / w."""

    q: Tree
    w: jax.Array


def _unpushed(state: PushSumState) -> Tree:
    return jax.tree.map(lambda a: a / state.w.astype(a.dtype), state.q)


def _refuse_restart(memory: Any, previous_d: Tree) -> Any:
    check_combination({"changing members": True, "push-sum weights": True}, "this run")


def _unit_weight(s: Tree) -> jax.Array:
    return jnp.ones((), jnp.result_type(*jax.tree.leaves(s)))


@pytrees.pytree
@dataclass(frozen=True)
class Push(CommunicationRule):
    """Push-sum, as in SGP (Assran et al., 2019; Nedic and Olshevsky, 2016)."""

    restart = staticmethod(_refuse_restart)

    def init(self, s: Tree) -> Any:
        return PushSumState(s, _unit_weight(s))

    def outgoing(self, inputs: CommunicationInputs) -> Message:
        q, w = inputs.memory
        return Message(None, PushSumState(inputs.descend(inputs.d, q), w))

    def incoming(
        self, inputs: CommunicationInputs, sent: Message, change: Message
    ) -> tuple[Tree, Any]:
        pushed = pytrees.add(sent.total, change.total)
        return _unpushed(pushed), pushed


@pytrees.pytree
@dataclass(frozen=True)
class PushTracking(CommunicationRule):
    """Push-DIGing (Nedic, Olshevsky and Shi, 2017): tracking by the sender's weights alone."""

    vectors = 2
    share_of_step = 0.5
    needs_previous_direction = True
    restart = staticmethod(_refuse_restart)

    def init(self, s: Tree) -> Any:
        return PushSumState(s, _unit_weight(s)), pytrees.zeros(s)

    def tracker(self, memory: Any) -> Tree | None:
        return memory[1]

    def outgoing(self, inputs: CommunicationInputs) -> Message:
        (q, w), u = inputs.memory
        u = pytrees.add(u, pytrees.sub(inputs.d, inputs.previous_d))
        return Message(None, (PushSumState(inputs.descend(u, q), w), u))

    def step_direction(self, inputs: CommunicationInputs, sent: Message, change: Message) -> Tree:
        return pytrees.add(inputs.memory[1], pytrees.sub(inputs.d, inputs.previous_d))

    def incoming(
        self, inputs: CommunicationInputs, sent: Message, change: Message
    ) -> tuple[Tree, Any]:
        pushed, u = pytrees.add(sent.total, change.total)
        return _unpushed(pushed), (pushed, u)
