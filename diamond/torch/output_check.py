"""Comparison of a converted module with the module itself, on inputs of the same shapes."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import host_transfer
from .torch_versions import import_torch

TOLERANCE = 1e-2  # relative to the largest output; rounding of float32 is far below


def warn_if_different(
    name: str, converted: Callable[..., Any], module: Callable[..., Any], inputs: Any, *, dtype: Any
) -> None:
    """Warn if a module and its JAX function differ, as after a lost change in place.

    Args:
        name: name of the module, for the warning.
        converted: the JAX function, with the module's own parameters.
        module: the module, with an output of containers that JAX knows.
        inputs: positional and keyword inputs, perhaps traced; only shapes and types are used.
        dtype: type of floats, that of the module's parameters.
    """
    torch = import_torch()
    examples = jax.tree.map(lambda value: _example(value, dtype), inputs)
    to_tensor = lambda a: torch.from_numpy(np.array(a)) if isinstance(a, np.ndarray) else a
    tensors = jax.tree.map(to_tensor, examples)
    try:
        with torch.no_grad():
            expected = host_transfer.without_tensors(module(*tensors[0], **tensors[1]))
        with jax.ensure_compile_time_eval():
            output = converted(*examples[0], **examples[1])
    except Exception:  # such as an index out of range: these inputs are not the user's
        return
    arrays = lambda tree: [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    if not all(map(_close, arrays(output), arrays(expected))):
        warnings.warn(
            f"the JAX function of {name} and the module give different outputs on inputs of "
            f"the same shapes: PyTorch code that writes into a view, such as a.view(-1)[0] = 1, "
            f"has no effect in JAX; compute a new tensor instead",
            RuntimeWarning,
            stacklevel=3,
        )


def _example(value: Any, dtype: Any) -> Any:
    """Return an array of the shape of `value`: random floats, or ones."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return value
    if jnp.issubdtype(value.dtype, jnp.floating):
        return np.random.default_rng(0).normal(size=value.shape).astype(dtype)
    return np.ones(value.shape, value.dtype)


def _close(a: Any, b: Any) -> bool:
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return False
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    return bool(np.abs(a - b).max(initial=0.0) <= TOLERANCE * np.abs(b).max(initial=1e-3))
