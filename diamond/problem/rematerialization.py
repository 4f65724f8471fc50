"""Losses that compute their activations again in the backward pass instead of storing them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ..core.pytrees import Tree
from ..core.validation import as_int


def rematerialize(loss: Callable[..., jax.Array], rows: bool | int) -> Callable[..., jax.Array]:
    """Wrap a loss in `jax.checkpoint`.

    Args:
        loss: f(x, y, rows), an average over the rows.
        rows: True, or the number of rows of a chunk. Chunks are evaluated one after the other, so
            that the backward pass stores the activations of one chunk.

    Returns:
        The same loss, up to rounding.
    """
    checkpointed: Callable[..., jax.Array] = jax.checkpoint(loss)
    if rows is True:
        return checkpointed
    rows = as_int("remat", rows, 1)

    def evaluate_in_chunks(x: Tree, y: Tree, batch: Tree) -> jax.Array:
        count = jax.tree.leaves(batch)[0].shape[0]
        chunks = count // rows
        if chunks < 2:
            return checkpointed(x, y, batch)
        chunked = jax.tree.map(
            lambda a: a[: chunks * rows].reshape(chunks, rows, *a.shape[1:]), batch
        )
        value = jnp.mean(jax.lax.map(lambda chunk: checkpointed(x, y, chunk), chunked))
        if remainder := count - chunks * rows:
            rest = checkpointed(x, y, jax.tree.map(lambda a: a[chunks * rows :], batch))
            value = (value * (count - remainder) + rest * remainder) / count
        return value

    return evaluate_in_chunks
