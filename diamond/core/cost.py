"""What an agent spent: oracle calls, counted where they are made.

One unit is one row: a gradient of a batch of 64 rows, taken at two points, is 64 samples and 128
gradients. Of a full gradient of n rows, n samples and n gradients.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Count = Any  # a Python int or an integer array


class Cost(NamedTuple):
    """Oracle calls, in rows."""

    samples: Count = 0  # rows drawn; the same rows at a second point are no new sample
    gradients: Count = 0  # gradients of f (both blocks at once) or of g, in x, y or both
    hvps: Count = 0  # Hessian-vector products g_yy w
    jvps: Count = 0  # Jacobian-vector products g_xy w


def zeros() -> jax.Array:
    """A counter at zero. Two uint32 limbs a field, so that it never overflows or rounds."""
    return jnp.zeros((2, len(Cost._fields)), jnp.uint32)


def charge(counter: jax.Array, cost: Cost) -> jax.Array:
    """The counter after `cost`, none of it 2^32 or more."""
    spent = jnp.stack([jnp.asarray(c).astype(jnp.uint32) for c in cost])
    return add(counter, jnp.stack([spent, jnp.zeros_like(spent)]))


def add(counter: jax.Array, more: jax.Array) -> jax.Array:
    """The sum of two counters, or of as many of them as both have."""
    low = counter[..., 0, :] + more[..., 0, :]
    carried = (low < more[..., 0, :]).astype(jnp.uint32)
    return jnp.stack([low, counter[..., 1, :] + more[..., 1, :] + carried], axis=-2)


def each(cost: Cost, agents: int) -> np.ndarray:
    """`cost` as counters, one an agent; a plain number is what every agent paid.

    Costs only grow: a negative one is a mistake of the caller, and refused.
    """
    found = np.stack([np.broadcast_to(np.asarray(c, np.int64), (agents,)) for c in cost], axis=-1)
    if (found < 0).any():
        raise ValueError(f"a cost of {cost}: nothing that was spent can be taken back")
    return np.stack([found & 0xFFFFFFFF, found >> 32], axis=-2).astype(np.uint32)


def total(counter: jax.Array) -> np.ndarray:
    """The counter's value, one integer a field (the last axis)."""
    limbs = np.asarray(counter).astype(np.uint64)
    return limbs[..., 0, :] + (limbs[..., 1, :] << np.uint64(32))
