"""Tracked AdaGrad-norm SPARKLE (ours, after AdaSDBO, NeurIPS 2025): adaptive step sizes."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...core import pytrees
from ...core.pytrees import Number, Tree
from ...core.sampling import Sample
from ...interface.round_interface import Message
from ...problem import Objectives
from ...schedules.step_schedules import step_factor
from ..parts.directions import carried
from ..parts.provenance import EXACT, Provenance
from ..parts.single_stage import SingleStageMethod
from ..parts.variables import Point

__all__ = ["adasdbo"]

PROVENANCE = Provenance(
    "Tracked AdaGrad-norm SPARKLE (ours, after AdaSDBO, NeurIPS 2025)",
    "abstracts read; steps of S-TFBO from memory, fairly certain; over a network uncertain, with "
    "tracking ours",
    EXACT,
)


class AdaSdboState(NamedTuple):
    x: Tree
    y: Tree
    z: Tree
    u: Any  # trackers after mixing
    old: Point  # directions of the previous round
    sums: Any  # a^2, b^2, c^2: accumulated squared norms of the trackers


@pytrees.pytree
@dataclass(frozen=True)
class AdaSdbo(SingleStageMethod):
    scale: Number
    first: Number
    batch: int = field(metadata={"static": True})
    lower_levels: tuple[str, ...] = field(default=("common",), metadata={"static": True})
    networks = "directed"
    about = "carried; plain; tracking, AdaGrad-norm; xyz; x+x+y+y+z+z; f, g, g_yy, g_xy on a batch"

    def schedule_values(self, t: Number) -> dict[str, Number]:
        return {"scale": self.scale}

    def with_scaled_steps(self, factor: Number) -> "AdaSdbo":
        return replace(self, scale=self.scale * factor)

    def init(self, x: Tree, y: Tree) -> AdaSdboState:
        zeros = pytrees.zeros(Point(x, y, y))
        first = jnp.asarray(self.first**2, jnp.result_type(*jax.tree.leaves(x)))
        return AdaSdboState(x, y, zeros.z, zeros, zeros, Point(first, first, first))

    def estimate(self, problem: Objectives, state: AdaSdboState, t: Number, sample: Sample) -> Any:
        (directions,), cost = carried()(problem, [Point(*state[:3])], sample, "xyz", t)
        return directions, cost

    def outgoing(self, state: AdaSdboState, estimate: Point, t: Number) -> Message:
        u = pytrees.add(state.u, pytrees.sub(estimate, state.old))
        sums = Point(*(total + pytrees.dot(s, s) for total, s in zip(state.sums, u)))
        a, b, c = (jnp.sqrt(total) for total in sums)
        steps = 1 / (a * jnp.maximum(b, c)), 1 / b, 1 / jnp.maximum(b, c)
        move = lambda step, u, s: pytrees.axpy(-self.scale * step, u, s)
        x, y, z = map(move, steps, u, state[:3])
        return Message({"x": x, "y": y, "z": z, "sums": sums}, u)

    def update(self, state: Any, estimate: Point, sent: Any, change: Any, t: Any) -> AdaSdboState:
        average, u, _ = pytrees.add(sent, change)
        return AdaSdboState(u=u, old=estimate, **average)


def adasdbo(scale: Number = 1.0, first: Number = 1.0, batch: int = 64) -> AdaSdbo:
    """Step y by 1 / b, z by 1 / max(b, c), x by 1 / (a max(b, c)), times `scale`.

    a^2, b^2, c^2 are `first`^2 plus the accumulated squared norms of the trackers of x, y, z,
    mixed. Without trackers the sums would grow without bound for heterogeneous agents, and progress
    would stall. No problem constant is needed.
    """
    return AdaSdbo(step_factor("scale", scale), step_factor("first", first), batch)
