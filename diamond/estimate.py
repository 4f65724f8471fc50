"""How sampled gradients become directions: plain, with momentum, or by recursive differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from . import tree
from .cost import Cost
from .sampling import Sample
from .schedule import Number, Schedule, weight
from .tree import Tree

Point = tuple[Tree, Tree]  # (x, y)
Directions = tuple[Tree, Tree]  # (p, v): of the upper and of the lower level
Gradients = Callable[[Sequence[Point], Sample], tuple[list[Directions], Cost]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Plain:
    """p_t, v_t: the gradients on a fresh sample, or on all rows."""

    full: bool = field(metadata={"static": True})
    recalls: bool = field(default=False, metadata={"static": True})

    def numbers(self, t: Number) -> dict[str, Number]:
        return {}

    def __call__(
        self, gradients: Gradients, now: Point, last: Any, old: Directions, t: Number, s: Sample
    ) -> tuple[Directions, Cost]:
        (new,), cost = gradients([now], s.full() if self.full else s)
        return new, cost


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Momentum:
    """p_t = h(t) + (1 - eta_t) (p_{t-1} - h(t-1)), both on the sample of round t (6); v_t (7)."""

    eta: Schedule
    gamma: Schedule
    recalls: bool = field(default=True, metadata={"static": True})

    def numbers(self, t: Number) -> dict[str, Number]:
        return {"eta": weight(self.eta, t), "gamma": weight(self.gamma, t)}

    def __call__(
        self, gradients: Gradients, now: Point, last: Any, old: Directions, t: Number, s: Sample
    ) -> tuple[Directions, Cost]:
        (new, back), cost = gradients([now, last], s)
        p, v = tree.sub(old, back)
        p = tree.axpy(1 - weight(self.eta, t), p, new[0])
        v = tree.axpy(1 - weight(self.gamma, t), v, new[1])
        return (p, v), cost


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spider:
    """All rows every `period` rounds; in between p_t = p_{t-1} + h(t) - h(t-1), likewise v_t."""

    period: Any
    recalls: bool = field(default=True, metadata={"static": True})

    def numbers(self, t: Number) -> dict[str, Number]:
        return {"period": self.period}

    def __call__(
        self, gradients: Gradients, now: Point, last: Any, old: Directions, t: Number, s: Sample
    ) -> tuple[Directions, Cost]:
        def typed(found: tuple[Directions, Cost]) -> tuple[Directions, Cost]:
            directions, cost = found
            return directions, Cost(*(jnp.asarray(c).astype(jnp.uint32) for c in cost))

        def reset() -> tuple[Directions, Cost]:
            (new,), cost = gradients([now], s.full())
            return typed((new, cost))

        def recur() -> tuple[Directions, Cost]:
            (new, back), cost = gradients([now, last], s)
            return typed((tree.add(old, tree.sub(new, back)), cost))

        return jax.lax.cond(t % self.period == 0, reset, recur)
