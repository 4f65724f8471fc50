"""Communication rules by name, with the options of their makers."""

from collections.abc import Callable
from typing import Any

from ...core.pytrees import Number
from ...core.suggestions import did_you_mean
from ...schedules.deferred import Deferred, ResolutionContext, ResolvedValue
from .communication_rules import (
    Diffusion,
    Extra,
    Gossip,
    Local,
    Order,
    Push,
    PushTracking,
    Tracking,
)

MIN_EIGENVALUE = -1 / 3  # lower bound of the eigenvalues of the matrix of diffusion


def _diffusion_share(context: ResolutionContext) -> ResolvedValue:
    """Return 1 if M has no negative eigenvalue, else 1/2: (I + M) / 2 has none."""
    if context.network is None:
        return ResolvedValue(1.0, lasting=True)
    return ResolvedValue(0.5 if context.network.min_eigenvalue < -1e-12 else 1.0, lasting=True)


def _checked_whole_share(context: ResolutionContext) -> ResolvedValue:
    """Return 1; reject M with an eigenvalue of -1/3 or less, where diffusion diverges."""
    if context.network is not None and context.network.min_eigenvalue <= MIN_EIGENVALUE:
        raise ValueError(
            f"the mixing matrix of {context.network.name} has an eigenvalue "
            f"{context.network.min_eigenvalue:.2f}; exact diffusion needs all above -1/3: leave "
            f"lazy out, or take mixing='laplacian'"
        )
    return ResolvedValue(1.0, lasting=True)


def local() -> Local:
    """Make the local rule: each agent keeps its own value."""
    return Local()


def gossip(order: Order = "atc", relax: Number | None = None) -> Gossip:
    """Make gossip: average with the neighbours."""
    return Gossip(_check_order(order), relax)


def tracking(order: Order = "atc", relax: Number | None = None, prox: Any = None) -> Tracking:
    """Make gradient tracking: move along the network's mean direction."""
    return Tracking(_check_order(order), relax, prox)


def diffusion(lazy: bool | None = None) -> Diffusion:
    """Make exact diffusion; `lazy` uses (I + M) / 2 for M, by default if M requires it."""
    if lazy is None:
        return Diffusion(Deferred("share", _diffusion_share))
    return Diffusion(0.5 if lazy else Deferred("whole_share", _checked_whole_share))


def extra(lazy: bool = False) -> Extra:
    """Make EXTRA; `lazy` uses (I + M) / 2 for M: slower, but stable with longer steps."""
    return Extra(0.5 if lazy else 1.0)


def push() -> Push:
    """Make push-sum: the sender's weights, divided by the received push-sum weight."""
    return Push()


def push_tracking() -> PushTracking:
    """Make gradient tracking by push-sum."""
    return PushTracking()


def _check_order(order: Order) -> Order:
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


def communication_rule(rule: Any, order: Order = "atc", relax: Number | None = None) -> Any:
    """Return a communication rule by its name, or a rule unchanged.

    "local", "gossip", "gt" (tracking), "extra", "ed" (exact diffusion), "push" (push-sum),
    "push_gt" (tracking by push-sum); gossip and tracking mix in this `order` and make the share
    `relax` of the step.
    """
    if not isinstance(rule, str):
        return rule
    if rule not in NAMES:
        raise ValueError(f"no communication rule {rule!r}; {did_you_mean(rule, NAMES)}")
    if rule in ("gossip", "gt"):
        return gossip(order, relax) if rule == "gossip" else tracking(order, relax)
    return MAKERS[rule]()
