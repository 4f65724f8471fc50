"""Rows of a stream, drawn on demand inside compiled programs."""

from dataclasses import field, replace
from typing import Any

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.exclusions import check_combination
from ..core.pytrees import Tree
from ..core.sampling import Batch, LargeBatch, Where, estimation_key
from ..hardware.compiler import compile_fast
from .stored_rows import Loss, Rows, to_bfloat16


@pytrees.pytree
class StreamRows:
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
    def is_sample(self) -> bool:
        return self.sample.is_sample

    @property
    def stored(self) -> None:
        return None

    def for_agent(self, agent: Any) -> "StreamRows":
        """Return the rows of one agent."""
        return replace(self, sample=self.sample.for_agent(agent), number=self.number[agent])

    def choose_batch(self, key: jax.Array) -> Where:
        """Choose a batch by `key` alone."""
        return key

    def draw_batch(self, where: Where) -> Batch:
        """Draw one agent's batch once, for all evaluations on it."""
        return Batch(self.rows_at(where), where)

    def rows_at(self, where: Where) -> Tree:
        """Return one agent's batch for the key `where`."""
        if isinstance(where, Batch):
            return where.rows
        key = where.key if isinstance(where, LargeBatch) else where
        keys = jax.random.split(key, self.size(where))
        rows = jax.vmap(self.draw, (0, None))(keys, self.number)
        rows = jax.tree.map(lambda a: a.astype(a.dtype), rows)  # removes weak types
        return to_bfloat16(rows) if self.half else rows

    def estimation_rows(self, part: int, count: int) -> Rows:
        """Return `count` rows of every agent for estimating numbers, as if they were all rows."""
        rows: Rows = _draw_estimation_rows(self, part, count)
        return rows

    def sample_rows(self, count: int, chunk: int) -> Rows:
        """Return the first rows of one agent's sample, averaged in chunks."""
        return self.sample.sample_rows(count, chunk)

    def mean(self, loss: Loss, x: Tree, y: Tree) -> jax.Array:
        """Average `loss` over one agent's sample."""
        return self.sample.mean(loss, x, y)

    def variance(self, loss: Loss, x: Tree, y: Tree) -> jax.Array:
        """Return the variance of `mean`."""
        return self.sample.variance(loss, x, y)

    def evaluate(self, loss: Loss, x: Tree, y: Tree, where: Where) -> jax.Array:
        """Evaluate `loss` on the rows of the key `where`, or on the sample if None."""
        return self.mean(loss, x, y) if where is None else loss(x, y, self.rows_at(where))

    def size(self, where: Where) -> Any:
        """Return the number of rows that `where` stands for."""
        if isinstance(where, LargeBatch):
            return full_batch_rows(self.large)
        return self.count if where is None else self.batch

    def count_fresh_rows(self, where: Where) -> Any:
        """Return the number of rows that `where` adds to the rows already drawn."""
        return 0 if where is None else self.size(where)

    def to_bfloat16(self) -> "StreamRows":
        """Return the rows as bfloat16."""
        return replace(self, sample=self.sample.to_bfloat16(), half=True)


@compile_fast("part", "count")
def _draw_estimation_rows(rows: StreamRows, part: int, count: int) -> Rows:
    def rows_of_agent(number: jax.Array) -> Tree:
        return replace(rows, number=number, batch=count).rows_at(estimation_key(part, number))

    return Rows(
        jax.vmap(rows_of_agent)(rows.number),
        jnp.full_like(rows.count, count),
        1,
        chunk=rows.sample.chunk,
    )


def full_batch_rows(large: int | None) -> int:
    """Return the number of rows that stands for all rows; raise if `large` was not given."""
    check_combination({"all rows": large is None, "streams": True}, "this run")
    assert large is not None
    return large
