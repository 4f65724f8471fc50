"""Sketches of vectors: a few numbers that preserve norms and angles.

Entry i is added to bucket i modulo SIZE with a random sign (a count sketch: Charikar, Chen and
Farach-Colton, 2002), so that inner products are unbiased, with a relative error of about sqrt(2 /
SIZE). A vector of at most SIZE numbers is its own sketch.
"""

import jax
import jax.numpy as jnp

from ..core.pytrees import Tree

SIZE = 32


def sketch(a: Tree) -> jax.Array:
    """Return the sketch of all leaves together."""
    flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(a)])
    if flat.size <= SIZE:
        return flat
    index = jnp.arange(flat.size, dtype=jnp.uint32)
    mixed = (index ^ (index >> 16)) * jnp.uint32(0x45D9F3B)
    mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x45D9F3B)
    signed = jnp.where(mixed >> 31 == 1, flat, -flat)
    return jnp.pad(signed, (0, -flat.size % SIZE)).reshape(-1, SIZE).sum(0)
