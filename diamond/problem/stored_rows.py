"""Rows of the agents as arrays of a compiled program, and losses averaged over the rows."""

from collections.abc import Callable
from dataclasses import field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import pytrees
from ..core.pytrees import Tree
from ..core.sampling import Sample, Where

Loss = Callable[[Tree, Tree, Tree], jax.Array]  # (x, y, rows) -> value, an average over the rows


@pytrees.pytree
class Rows:
    """Rows of all agents, padded to the largest count; or rows of one agent.

    Each agent's rows are padded cyclically with its own first rows, so that a block may start at
    any row and never contains rows of another agent. To select one agent, either use
    `for_agent(i)`, which does not copy the data (blocks are cut from the full array), or map over
    the agent axis (for work on all rows).
    """

    data: Tree  # (agents, most rows + batch - 1, ...)
    count: jax.Array  # (agents,), number of rows without padding
    batch: int = field(metadata={"static": True})  # rows in a block
    agent: Any = None  # index of the selected agent in data of all agents
    # True if the rows are a sample of a stream.
    is_sample: bool = field(default=False, metadata={"static": True})
    # Rows of a chunk in averages over all rows; None: all rows at once.
    chunk: int | None = field(default=None, metadata={"static": True})

    @property
    def stored(self) -> Any:
        """Number of rows to draw from; None would mean unlimited."""
        return self.count

    @property
    def most_rows(self) -> int:
        """Largest number of rows of an agent, without the padding for blocks."""
        axis = 0 if self.agent is None else 1
        return int(jax.tree.leaves(self.data)[0].shape[axis]) - self.batch + 1

    def for_agent(self, agent: Any) -> "Rows":
        """Return the rows of one agent."""
        return replace(self, count=self.count[agent], agent=agent)

    def choose_batch(self, key: jax.Array) -> Where:
        """Choose a batch by `key` alone."""
        return jax.random.randint(key, (), 0, self.count)

    def draw_batch(self, where: Where) -> Where:
        """Return `where`: stored rows need no drawing."""
        return where

    def rows_at(self, where: Where) -> Tree:
        """Return one agent's block that starts at `where`, or its rows with the indices `where`."""
        agent_index = () if self.agent is None else (self.agent,)
        if jnp.ndim(where):
            return jax.tree.map(lambda a: a[(*agent_index, where)], self.data)

        def block(a: jax.Array) -> jax.Array:
            shape = (self.batch, *a.shape[len(agent_index) + 1 :])
            first = (*starts, *(np.int32(0) for _ in shape[1:]))
            sizes = (*(1 for _ in agent_index), *shape)
            block = jax.lax.dynamic_slice(a, first, sizes, allow_negative_indices=False)
            return jax.lax.reshape(block, shape)

        starts: list[Any] = [jnp.asarray(i, jnp.int32) for i in (*agent_index, where)]

        return jax.tree.map(block, self.data)

    def mean(self, loss: Loss, x: Tree, y: Tree) -> jax.Array:
        """Average `loss` over all rows of one agent, without the padding."""
        values = self.row_losses(loss, x, y)
        return jnp.sum(jnp.where(jnp.arange(len(values)) < self.count, values, 0)) / self.count

    def variance(self, loss: Loss, x: Tree, y: Tree) -> jax.Array:
        """Variance of `mean`: sum (value - mean)^2 / (n (n - 1)) for a sample, else 0."""
        if not self.is_sample:
            return jnp.zeros(())
        values, n = self.row_losses(loss, x, y), self.count
        is_row = jnp.arange(len(values)) < n
        mean = jnp.sum(jnp.where(is_row, values, 0)) / n
        return jnp.sum(jnp.where(is_row, (values - mean) ** 2, 0)) / n / jnp.maximum(n - 1, 1)

    def _agent_data(self) -> tuple[Tree, int]:
        """Return the rows of one agent, and their number without the padding for blocks."""
        data = self.data
        if self.agent is not None:
            data = jax.tree.map(lambda a: a[self.agent], data)
        return data, jax.tree.leaves(data)[0].shape[0] - self.batch + 1

    def row_losses(self, loss: Loss, x: Tree, y: Tree) -> jax.Array:
        """Evaluate `loss` on every single row of one agent, padding included."""
        data, length = self._agent_data()
        rows = jax.tree.map(lambda a: a[:length, None], data)
        if self.chunk is None or length <= self.chunk:
            return jax.vmap(loss, (None, None, 0))(x, y, rows)
        # A backward pass stores the activations of one chunk.
        evaluate = jax.checkpoint(lambda row: loss(x, y, row))
        return jax.lax.map(evaluate, rows, batch_size=self.chunk)

    def sample_rows(self, count: int, chunk: int) -> "Rows":
        """Return the first `count` rows of one agent as all its rows, averaged in chunks.

        Rows are in a random order, so that the first rows are a fixed random sample.
        """
        data, length = self._agent_data()
        length = min(length, count)
        chunk = min(chunk, length)
        padding = -length % chunk
        pad = lambda a: jnp.concatenate([a[:length], a[:padding]]) if padding else a[:length]
        number = jnp.minimum(self.count, length)
        return Rows(jax.tree.map(pad, data), number, 1, None, self.is_sample, chunk)

    def evaluate(self, loss: Loss, x: Tree, y: Tree, where: Where) -> jax.Array:
        """Evaluate `loss` on the rows at `where`, or on all rows if None."""
        return self.mean(loss, x, y) if where is None else loss(x, y, self.rows_at(where))

    def size(self, where: Where) -> Any:
        """Return the number of rows that `where` stands for."""
        return self.count if where is None else self.batch

    def count_fresh_rows(self, where: Where) -> Any:
        """Return how many rows `where` adds to the rows already drawn: 0 if all rows are in use."""
        return 0 if where is None else self.batch

    def to_bfloat16(self) -> "Rows":
        """Return the rows as bfloat16."""
        return replace(self, data=to_bfloat16(self.data))


@pytrees.pytree
class Objectives:
    """The losses f and g with the rows they average over, of all agents or of one.

    The leaves are the data, so data are arguments of the compiled program, never constants.
    """

    train: Any  # `Rows`, or `StreamRows` for a stream
    valid: Any
    upper: Loss = field(metadata={"static": True})
    lower: Any = field(metadata={"static": True})  # None: no lower level
    lower_level: str = field(default="personal", metadata={"static": True})
    prox: Any = field(default=None, metadata={"static": True})
    half: bool = field(default=False, metadata={"static": True})  # losses see x as bfloat16
    half_y: bool = field(default=False, metadata={"static": True})  # and y
    # Bytes of arrays that the losses close over; programs take these arrays as arguments.
    captured_bytes: int = field(default=0, metadata={"static": True})

    def for_agent(self, agent: Any) -> "Objectives":
        """Return the objectives of one agent."""
        return replace(self, train=self.train.for_agent(agent), valid=self.valid.for_agent(agent))

    def draw_batch(self, sample: Sample) -> Sample:
        """Draw the stream rows of one agent's sample; those of the chain are drawn later."""
        train, valid = self.train.draw_batch, self.valid.draw_batch
        return Sample(
            valid(sample.upper), train(sample.lower), train(sample.cross), sample.chain, sample.bits
        )

    def f(self, x: Tree, y: Tree, where: Where) -> jax.Array:
        """Evaluate f(x, y; xi) with xi the validation rows at `where`."""
        return self._evaluate(self.valid, self.upper, x, y, where)

    def g(self, x: Tree, y: Tree, where: Where) -> jax.Array:
        """Evaluate g(x, y; zeta) with zeta the training rows at `where`."""
        return self._evaluate(self.train, self.lower, x, y, where)

    def _evaluate(self, rows: Any, loss: Loss, x: Tree, y: Tree, where: Where) -> jax.Array:
        if not self.half_y:
            return rows.evaluate(loss, self.in_loss_precision(x), y, where)
        value = rows.evaluate(loss, to_bfloat16(x), to_bfloat16(y), where)
        return value.astype(jax.tree.leaves((y, x))[0].dtype)

    def in_loss_precision(self, x: Tree) -> Tree:
        """Return x in the precision that the losses use."""
        return to_bfloat16(x) if self.half else x


def to_bfloat16(tree: Tree) -> Tree:
    """Convert floating-point leaves to bfloat16."""
    real = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
    return jax.tree.map(lambda a: a.astype(jnp.bfloat16) if real(a) else a, tree)
