"""Transfers between host and device without compiling a program.

`jnp.asarray` and operations outside of `jax.jit` compile a program for every shape.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .pytrees import Tree


def to_device(a: Any, dtype: Any = None) -> jax.Array:
    """Convert a host array like `jnp.asarray`; the array must not be changed afterwards."""
    return jax.device_put(np.asarray(a, dtype))


def broadcast_to_agents(a: Tree, agents: int) -> Tree:
    """Repeat the arrays of `a` for every agent, along a new first axis."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(a)):
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (agents, *a.shape)), a)
    return jax.tree.map(lambda a: to_device(np.broadcast_to(np.asarray(a), (agents, *a.shape))), a)


def to_host(a: Tree) -> Tree:
    """Return CPU arrays as host arrays, without a copy or a program."""
    leaves = jax.tree.leaves(a)
    all_on_host = all(isinstance(leaf, np.ndarray) or _on_cpu(leaf) for leaf in leaves)
    return jax.tree.map(np.asarray, a) if all_on_host else a


def _on_cpu(leaf: jax.Array) -> bool:
    return {device.platform for device in leaf.devices()} == {"cpu"}
