"""Counters of an agent's oracle calls.

One unit is one row: a gradient of a batch of 64 rows at two points is 64 samples and 128 gradients;
a full gradient of n rows is n samples and n gradients.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Count = Any  # a Python int or an integer array


class Cost(NamedTuple):
    """Oracle calls, in rows."""

    samples: Count = 0  # rows drawn; the same rows at a second point do not count again
    gradients: Count = 0  # gradients of f (both blocks at once) or of g, in x, y or both
    hvps: Count = 0  # Hessian-vector products g_yy w
    jvps: Count = 0  # Jacobian-vector products g_xy w


def zeros() -> jax.Array:
    """Return a counter at zero: two uint32 limbs per field, exact without overflow."""
    return jnp.zeros((2, len(Cost._fields)), jnp.uint32)


def charge(counter: jax.Array, cost: Cost) -> jax.Array:
    """Return the counter after `cost`, each field below 2^32."""
    spent = jnp.stack([jnp.asarray(c).astype(jnp.uint32) for c in cost])
    return add(counter, jnp.stack([spent, jnp.zeros_like(spent)]))


def add(counter: jax.Array, more: jax.Array) -> jax.Array:
    """Add two counters, or arrays of counters of equal shape."""
    low = counter[..., 0, :] + more[..., 0, :]
    carry = (low < more[..., 0, :]).astype(jnp.uint32)
    return jnp.stack([low, counter[..., 1, :] + more[..., 1, :] + carry], axis=-2)


def agent_counters(cost: Cost, agents: int) -> np.ndarray:
    """Return `cost` as counters, one per agent; a plain number is charged to every agent.

    Raises ValueError for negative costs.
    """
    counts = np.stack([np.broadcast_to(np.asarray(c, np.int64), (agents,)) for c in cost], axis=-1)
    if (counts < 0).any():
        raise ValueError(f"a cost of {cost}: nothing that was spent can be taken back")
    return np.stack([counts & 0xFFFFFFFF, counts >> 32], axis=-2).astype(np.uint32)


def total(counter: jax.Array) -> np.ndarray:
    """Return the counter's value, one integer per field (the last axis)."""
    limbs = np.asarray(counter).astype(np.uint64)
    return limbs[..., 0, :] + (limbs[..., 1, :] << np.uint64(32))
