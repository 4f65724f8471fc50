"""Transfers between host and device without compiling a program.

`jnp.asarray` and operations outside of `jax.jit` compile a program for every shape.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .pytrees import Tree

LARGE_ARRAY = 2**20  # bytes of an array that does not pass through the host


def to_device(a: Any, dtype: Any = None) -> jax.Array:
    """Convert a host array like `jnp.asarray`; the array must not be changed afterwards."""
    return jax.device_put(np.asarray(a, dtype))


def default_dtype() -> np.dtype[Any]:
    """Return the dtype of new arrays: float32, or float64 where JAX has it."""
    return jax.dtypes.canonicalize_dtype(np.float64)


def without_tensors(tree: Tree) -> Tree:
    """Return PyTorch tensors as numpy arrays, wherever they are; other leaves stay."""

    def to_numpy(a: Any) -> Any:
        if not hasattr(a, "detach"):
            return a
        a = a.detach().cpu()
        if str(a.dtype) == "torch.bfloat16":  # which `Tensor.numpy` does not support
            return a.float().numpy().astype(jnp.bfloat16)
        return a.numpy()

    return jax.tree.map(to_numpy, tree)


def broadcast_to_agents(a: Tree, agents: int) -> Tree:
    """Repeat the arrays of `a` for every agent, along a new first axis."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(a)):
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (agents, *a.shape)), a)

    def broadcast(a: Any) -> jax.Array:
        shape = (agents, *a.shape)
        if a.nbytes > LARGE_ARRAY:
            return jnp.broadcast_to(a, shape)
        return to_device(np.broadcast_to(np.asarray(a), shape))

    return jax.tree.map(broadcast, a)


def to_host(a: Tree) -> Tree:
    """Return CPU arrays as host arrays, without a copy or a program."""
    leaves = jax.tree.leaves(a)
    all_on_host = all(isinstance(leaf, np.ndarray) or _on_cpu(leaf) for leaf in leaves)
    return jax.tree.map(np.asarray, a) if all_on_host else a


def copy_to_host(a: Tree) -> Tree:
    """Return copies of the arrays on the host, which stay valid if the arrays are donated.

    An array of an accelerator is copied once, by its transfer.
    """

    def copy(leaf: Any) -> np.ndarray:
        is_on_host = not isinstance(leaf, jax.Array) or _on_cpu(leaf)
        return np.array(leaf, copy=True) if is_on_host else np.asarray(leaf)

    return jax.tree.map(copy, a)


def copy_to_device(a: Tree) -> Tree:
    """Return copies of the arrays on the device, which share no memory with the originals."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), a)


def _on_cpu(leaf: jax.Array) -> bool:
    return {device.platform for device in leaf.devices()} == {"cpu"}
