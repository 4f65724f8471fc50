"""Arrays that come from the host, or go there, with no program compiled for it.

`jnp.asarray` and operations outside of `jax.jit` compile one for every shape.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .tree import Tree


def put(a: Any, dtype: Any = None) -> jax.Array:
    """A host's array as `jnp.asarray` makes it; it must not be changed afterwards."""
    return jax.device_put(np.asarray(a, dtype))


def everywhere(a: Tree, agents: int) -> Tree:
    """The arrays of `a` for every agent, which are the first axis."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(a)):
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (agents, *a.shape)), a)
    return jax.tree.map(lambda a: put(np.broadcast_to(np.asarray(a), (agents, *a.shape))), a)


def at_hand(a: Tree) -> Tree:
    """Arrays of a CPU as the host's, which are not copied and need no program."""
    leaves = jax.tree.leaves(a)
    here = all(isinstance(leaf, np.ndarray) or _on_cpu(leaf) for leaf in leaves)
    return jax.tree.map(np.asarray, a) if here else a


def _on_cpu(leaf: jax.Array) -> bool:
    return {device.platform for device in leaf.devices()} == {"cpu"}
