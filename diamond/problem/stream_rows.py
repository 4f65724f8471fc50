"""Rows of a stream, drawn on demand inside compiled programs."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.pytrees import Tree
from ..core.sampling import Batch, Many, Where, looked_at
from .stored_rows import Loss, Rows, halved


@pytrees.pytree
@dataclass(frozen=True)
class Drawn:
    """Rows of a stream, for all agents or for one: a batch is a function of its key.

    The same key gives the same rows at every point where a loss is evaluated. Averages over "all
    rows" are taken over a sample that is drawn once.
    """

    sample: Rows
    number: jax.Array  # (agents,): the agents' numbers in the network
    draw: Any = field(metadata={"static": True})
    batch: int = field(metadata={"static": True})
    large: Any = field(metadata={"static": True})  # number of rows that stands for all, or None
    half: bool = field(default=False, metadata={"static": True})  # rows as bfloat16

    @property
    def data(self) -> Tree:
        return self.sample.data

    @property
    def count(self) -> jax.Array:
        return self.sample.count

    @property
    def sampled(self) -> bool:
        return self.sample.sampled

    @property
    def stored(self) -> None:
        return None

    def of(self, agent: Any) -> "Drawn":
        """Return the rows of one agent."""
        return replace(self, sample=self.sample.of(agent), number=self.number[agent])

    def somewhere(self, key: jax.Array) -> Where:
        """Choose a batch by `key` alone."""
        return key

    def at(self, where: Where) -> Batch:
        """Draw one agent's batch once, for all evaluations on it."""
        return Batch(self.take(where), where)

    def take(self, where: Where) -> Tree:
        """Return one agent's batch for the key `where`."""
        if isinstance(where, Batch):
            return where.rows
        key = where.key if isinstance(where, Many) else where
        keys = jax.random.split(key, self.size(where))
        rows = jax.vmap(self.draw, (0, None))(keys, self.number)
        rows = jax.tree.map(lambda a: a.astype(a.dtype), rows)  # removes weak types
        return halved(rows) if self.half else rows

    def looked_at(self, part: int, count: int) -> Rows:
        """Return `count` rows of every agent for estimating numbers, as if they were all rows."""
        found: Rows = _looked_at(self, part, count)
        return found

    def mean(self, loss: Loss, x: Tree, y: Tree) -> jax.Array:
        """Average `loss` over one agent's sample."""
        return self.sample.mean(loss, x, y)

    def variance(self, loss: Loss, x: Tree, y: Tree) -> jax.Array:
        """Return the variance of `mean`."""
        return self.sample.variance(loss, x, y)

    def evaluate(self, loss: Loss, x: Tree, y: Tree, where: Where) -> jax.Array:
        """Evaluate `loss` on the rows of the key `where`, or on the sample if None."""
        return self.mean(loss, x, y) if where is None else loss(x, y, self.take(where))

    def size(self, where: Where) -> Any:
        """Return the number of rows that `where` stands for."""
        if isinstance(where, Many):
            return all_rows(self.large)
        return self.count if where is None else self.batch

    def fresh(self, where: Where) -> Any:
        """Return the number of rows that `where` adds to the rows already drawn."""
        return 0 if where is None else self.size(where)

    def halved(self) -> "Drawn":
        """Return the rows as bfloat16."""
        return replace(self, sample=self.sample.halved(), half=True)


@partial(jax.jit, static_argnums=(1, 2))
def _looked_at(drawn: Drawn, part: int, count: int) -> Rows:
    def alone(number: jax.Array) -> Tree:
        return replace(drawn, number=number, batch=count).take(looked_at(part, number))

    return Rows(jax.vmap(alone)(drawn.number), jnp.full_like(drawn.count, count), 1)


def all_rows(large: int | None) -> int:
    """Return the number of rows that stands for all rows; raise if `large` was not given."""
    if large is None:
        raise ValueError(
            "this method asks for all rows, and a stream has no end: take one on mini-batches, "
            "such as diamond.diamond(), or say how many fresh rows stand for all, as in "
            "diamond.stream(draw, ..., large=4096)"
        )
    return large
