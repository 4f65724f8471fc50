"""A small method whose message is an exact mean, and what its mean is."""

from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diamond.core import pytrees
from diamond.core.cost_counter import Cost
from diamond.interface.round_interface import Message, Method, Stage

MeanState = namedtuple("MeanState", ["x", "y", "mean"])


@pytrees.pytree
@dataclass(frozen=True)
class MeanStage(Stage):
    """x moves along the mean of all gradients; every agent has the same x."""

    alpha: Any
    kind: str = field(default="mean", metadata={"static": True})
    repeats = 1
    hessian_batches = 0
    sends_before_gradient = False

    def estimate(self, problem, state, t, sample):
        f_x = jax.grad(lambda x: problem.f(x, state.y, sample.upper))(state.x)
        rows = problem.valid.size(sample.upper)
        return {"gradient": f_x, "rows": jnp.ones(2, jnp.float32)}, Cost(rows, rows)

    def outgoing(self, state, estimate, t):
        # A product, which a compiler could fuse with the first addition.
        scaled = estimate | {"gradient": pytrees.scale(self.alpha, estimate["gradient"])}
        if self.kind == "mixed":
            return Message(average=state.x, mean=scaled)
        return Message(mean=scaled)

    def update(self, state, estimate, sent, change, t):
        return MeanState(pytrees.sub(state.x, change.mean["gradient"]), state.y, change.mean)


@pytrees.pytree
@dataclass(frozen=True)
class GossipStage(MeanStage):
    """x is averaged with the neighbours."""

    def outgoing(self, state, estimate, t):
        return Message(pytrees.axpy(-self.alpha, estimate["gradient"], state.x))

    def update(self, state, estimate, sent, change, t):
        return state._replace(x=pytrees.add(sent.average, change.average))


@pytrees.pytree
@dataclass(frozen=True)
class MeanMethod(Method):
    """Rounds of an exact mean, or of gossip, a mean and gossip ("around")."""

    alpha: Any = 0.1
    kind: str = field(default="mean", metadata={"static": True})
    batch: int = field(default=3, metadata={"static": True})
    lower_levels = ("personal", "common", "none")
    networks = "directed"

    @property
    def stages(self):
        stage, gossip = MeanStage(self.alpha, self.kind), GossipStage(self.alpha)
        return (gossip, stage, gossip) if self.kind == "around" else (stage,)

    def schedule_values(self, t):
        return {"alpha": self.alpha}

    def with_scaled_steps(self, factor):
        return MeanMethod(self.alpha * factor, self.kind, self.batch)

    def init(self, x, y):
        mean = {"gradient": pytrees.zeros(x), "rows": jnp.zeros(2, jnp.float32)}
        return MeanState(x, y, mean)


def ordered_mean(tree, rows):
    """The mean of arrays, with the additions one after another."""
    totals = np.array(rows)
    for child, parent in tree.up:
        totals[parent] += totals[child]
    return totals[tree.root] / totals.dtype.type(len(totals))
