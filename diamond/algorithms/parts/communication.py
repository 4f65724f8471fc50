"""Moves: how a variable s moves over the network along its direction d, in one exchange.

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
two ends of a link change it oppositely. The mean of s moves along the mean of d in all moves but
`local`; gossip alone has a bias of order a if agents differ. `prox` maps s - a d (or s - a u) to
the proximal point of the problem's regularizer before it is sent.

s is an average, u a total: on a directed network, tracking is AB (push-pull), correct on any
network. The push moves send totals only, q and w, which the sender divides (push-sum): w, which
starts at 1, is the push-sum weight. Gossip is correct for balanced weights; the two moves with D
for symmetric, constant weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ...core import pytrees
from ...core.pytrees import Tree
from ...core.suggestions import did_you_mean
from ...interface.round_interface import Message
from ...schedules.deferred import Deferred, ResolutionContext, ResolvedValue
from ...schedules.step_schedules import Number
from .variables import STATIC

Order = Literal["paper", "atc"]
Prox = Callable[[Tree, Number], Tree]
LEAST = -1 / 3  # lower bound of the eigenvalues of the matrix of diffusion


class Given(NamedTuple):
    """Inputs of a move."""

    s: Tree
    memory: Any  # state of the move between rounds
    d: Tree  # None in `outgoing` of a move that sends before the gradient
    old: Tree  # d of the previous round, if the move needs it
    step: Number


def _along(given: Given, direction: Tree, prox: Prox | None, relax: Number | None) -> Tree:
    """Return s - a d, or its prox; only the share `relax` of the step is made."""
    there = pytrees.axpy(-given.step, direction, given.s)
    if prox is not None:
        there = prox(there, given.step)
    return _relaxed(given, there, relax)


def _relaxed(given: Given, there: Tree, relax: Number | None) -> Tree:
    """Return the point at the share `relax` of the way from s."""
    return there if relax is None else pytrees.axpy(relax, pytrees.sub(there, given.s), given.s)


class Move:
    """Defaults of a move: sends one vector, after the direction is known, without a tracker."""

    vectors: ClassVar[Any] = 1  # number of vectors sent
    share_of_step: ClassVar[Any] = 1.0  # step of a y with this move, relative to 1 / (1.5 L)
    networks: ClassVar[Any] = "directed"  # widest kind of network on which the move is correct
    sends_before_gradient: ClassVar[Any] = False  # whether it sends before d is known
    keeps: ClassVar[Any] = False  # whether it needs the previous d

    def init(self, s: Tree) -> Any:
        """Return the state of the move before round 0."""
        return None

    def tracker(self, memory: Any) -> Tree | None:
        """Return the network's mean direction of the previous round, if the move tracks it."""
        return None


@pytrees.pytree
@dataclass(frozen=True)
class Local(Move):
    """Local step s - a d without communication."""

    prox: Any = None
    vectors = 0
    sends_before_gradient = True

    def outgoing(self, given: Given) -> Message:
        return Message()

    def incoming(self, given: Given, sent: Message, change: Message) -> tuple[Tree, Any]:
        return _along(given, given.d, self.prox, None), None


@pytrees.pytree
@dataclass(frozen=True)
class Gossip(Move):
    """Gossip, as in D-SGD (Nedic and Ozdaglar, 2009; Lian et al., 2017)."""

    order: Order = field(default="atc", metadata=STATIC)
    relax: Number | None = None
    prox: Any = None
    networks = "balanced"

    @property
    def sends_before_gradient(self) -> bool:
        return self.order == "paper"

    def outgoing(self, given: Given) -> Message:
        return Message(
            given.s if self.sends_before_gradient else _along(given, given.d, self.prox, self.relax)
        )

    def incoming(self, given: Given, sent: Message, change: Message) -> tuple[Tree, Any]:
        moved = pytrees.add(sent.average, change.average)
        if self.sends_before_gradient:
            moved = _relaxed(given, pytrees.axpy(-given.step, given.d, moved), self.relax)
        return moved, None


@pytrees.pytree
@dataclass(frozen=True)
class Tracking(Move):
    """Gradient tracking u_t = sum_j M_ij u_{j,t-1} + d_t - d_{t-1} (8).

    The state is u_{t-1} in the paper's order, and sum_j M_ij u_{j,t-1} in the other. `relax` < 1:
    only that share of the step of s is made.
    """

    order: Order = field(default="paper", metadata=STATIC)
    relax: Number | None = None
    prox: Any = None
    vectors = 2
    share_of_step = 0.5
    keeps = True

    @property
    def sends_before_gradient(self) -> bool:
        return self.order == "paper"

    @property
    def networks(self) -> str:
        """Widest kind of network: a prox with unequal steps of the agents changes the limit."""
        return "directed" if self.prox is None else "balanced"

    def init(self, s: Tree) -> Any:
        return pytrees.zeros(s)

    def tracker(self, memory: Any) -> Tree | None:
        return memory

    def outgoing(self, given: Given) -> Message:
        if self.sends_before_gradient:
            return Message(given.s, given.memory)
        u = pytrees.add(given.memory, pytrees.sub(given.d, given.old))
        return Message(_along(given, u, self.prox, self.relax), u)

    def incoming(self, given: Given, sent: Message, change: Message) -> tuple[Tree, Any]:
        moved, u = pytrees.add(sent, change)
        if not self.sends_before_gradient:
            return moved, u
        u = pytrees.add(u, pytrees.sub(given.d, given.old))
        return _relaxed(given, pytrees.axpy(-given.step, u, moved), self.relax), u


@pytrees.pytree
@dataclass(frozen=True)
class Diffusion(Move):
    """Exact diffusion (Yuan et al., 2019; NIDS, D2), with the matrix I + share (M - I).

    An eigenvalue l of that matrix gives r^2 - 2 l r + l: stable for l > -1/3.
    """

    share: Any = 1.0
    networks = "symmetric"

    def init(self, s: Tree) -> Any:
        return pytrees.zeros(s)

    def outgoing(self, given: Given) -> Message:
        return Message(pytrees.sub(pytrees.axpy(-given.step, given.d, given.s), given.memory))

    def incoming(self, given: Given, sent: Message, change: Message) -> tuple[Tree, Any]:
        c = pytrees.scale(self.share, change.average)
        return pytrees.add(sent.average, c), pytrees.sub(given.memory, c)


@pytrees.pytree
@dataclass(frozen=True)
class Extra(Move):
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

    def outgoing(self, given: Given) -> Message:
        return Message(given.s)

    def incoming(self, given: Given, sent: Message, change: Message) -> tuple[Tree, Any]:
        c = pytrees.scale(self.share, change.average)
        moved = pytrees.sub(
            pytrees.axpy(-given.step, given.d, pytrees.add(given.s, c)), given.memory
        )
        return moved, pytrees.axpy(-0.5, c, given.memory)


class Pushed(NamedTuple):
    """State of push-sum: s = q / w."""

    q: Tree
    w: jax.Array


def _quotient(pushed: Pushed) -> Tree:
    return jax.tree.map(lambda a: a / pushed.w.astype(a.dtype), pushed.q)


def _one(s: Tree) -> jax.Array:
    return jnp.ones((), jnp.result_type(*jax.tree.leaves(s)))


@pytrees.pytree
@dataclass(frozen=True)
class Push(Move):
    """Push-sum, as in SGP (Assran et al., 2019; Nedic and Olshevsky, 2016)."""

    def init(self, s: Tree) -> Any:
        return Pushed(s, _one(s))

    def outgoing(self, given: Given) -> Message:
        q, w = given.memory
        return Message(None, Pushed(pytrees.axpy(-given.step, given.d, q), w))

    def incoming(self, given: Given, sent: Message, change: Message) -> tuple[Tree, Any]:
        pushed = pytrees.add(sent.total, change.total)
        return _quotient(pushed), pushed


@pytrees.pytree
@dataclass(frozen=True)
class PushTracking(Move):
    """Push-DIGing (Nedic, Olshevsky and Shi, 2017): tracking by the sender's weights alone."""

    vectors = 2
    share_of_step = 0.5
    keeps = True

    def init(self, s: Tree) -> Any:
        return Pushed(s, _one(s)), pytrees.zeros(s)

    def tracker(self, memory: Any) -> Tree | None:
        return memory[1]

    def outgoing(self, given: Given) -> Message:
        (q, w), u = given.memory
        u = pytrees.add(u, pytrees.sub(given.d, given.old))
        return Message(None, (Pushed(pytrees.axpy(-given.step, u, q), w), u))

    def incoming(self, given: Given, sent: Message, change: Message) -> tuple[Tree, Any]:
        pushed, u = pytrees.add(sent.total, change.total)
        return _quotient(pushed), (pushed, u)


def _share(setting: ResolutionContext) -> ResolvedValue:
    """Return 1 if M has no negative eigenvalue, else 1/2: (I + M) / 2 has none."""
    if setting.network is None:
        return ResolvedValue(1.0, lasting=True)
    return ResolvedValue(0.5 if setting.network.min_eigenvalue < -1e-12 else 1.0, lasting=True)


def _whole_share(setting: ResolutionContext) -> ResolvedValue:
    """Return 1; reject M with an eigenvalue of -1/3 or less, where diffusion diverges."""
    if setting.network is not None and setting.network.min_eigenvalue <= LEAST:
        raise ValueError(
            f"the mixing matrix of {setting.network.name} has an eigenvalue "
            f"{setting.network.min_eigenvalue:.2f}; exact diffusion needs all above -1/3: leave "
            f"lazy out, or take mixing='laplacian'"
        )
    return ResolvedValue(1.0, lasting=True)


def local() -> Local:
    """Make a local move: each agent keeps its own value."""
    return Local()


def gossip(order: Order = "atc", relax: Number | None = None) -> Gossip:
    """Make a gossip move: average with the neighbours."""
    return Gossip(_known(order), relax)


def tracking(order: Order = "atc", relax: Number | None = None, prox: Any = None) -> Tracking:
    """Make gradient tracking: move along the network's mean direction."""
    return Tracking(_known(order), relax, prox)


def diffusion(lazy: bool | None = None) -> Diffusion:
    """Make exact diffusion; `lazy` uses (I + M) / 2 for M, by default if M requires it."""
    if lazy is None:
        return Diffusion(Deferred("share", _share))
    return Diffusion(0.5 if lazy else Deferred("whole_share", _whole_share))


def extra(lazy: bool = False) -> Extra:
    """Make EXTRA; `lazy` uses (I + M) / 2 for M: slower, but stable with longer steps."""
    return Extra(0.5 if lazy else 1.0)


def push() -> Push:
    """Make push-sum: the sender's weights, divided by the received push-sum weight."""
    return Push()


def push_tracking() -> PushTracking:
    """Make gradient tracking by push-sum."""
    return PushTracking()


def _known(order: Order) -> Order:
    if order not in ("paper", "atc"):
        raise ValueError(f"no order {order!r}; there are 'paper' and 'atc'")
    return order


MAKERS: dict[str, Callable[[], Any]] = {
    "local": local,
    "extra": extra,
    "ed": diffusion,
    "push": push,
    "push_gt": push_tracking,
}
NAMES = ("local", "gossip", "gt", "extra", "ed", "push", "push_gt")


def move(given: Any, order: Order = "atc", relax: Number | None = None) -> Any:
    """Return a move by its name, or a move object unchanged.

    "local", "gossip", "gt" (tracking), "extra", "ed" (exact diffusion), "push" (push-sum),
    "push_gt" (tracking by push-sum); gossip and tracking mix in this `order` and make the share
    `relax` of the step.
    """
    if not isinstance(given, str):
        return given
    if given not in NAMES:
        raise ValueError(f"no move {given!r}; {did_you_mean(given, NAMES)}")
    if given in ("gossip", "gt"):
        return gossip(order, relax) if given == "gossip" else tracking(order, relax)
    return MAKERS[given]()
