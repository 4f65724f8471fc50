"""Checks of the arguments of `diamond.implicit`, before anything is compiled."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ..core import newton
from ..core.pytrees import Tree


def float_tree(name: str, tree: Tree) -> Tree:
    """Return the pytree as arrays; raise ValueError if it is empty or not of real numbers."""
    leaves, structure = jax.tree.flatten(tree)
    if not leaves:
        raise ValueError(f"{name} = {tree!r} has no numbers: give a pytree of arrays")
    arrays = []
    for leaf in leaves:
        if not isinstance(leaf, jax.Array | np.ndarray | np.number | float | int):
            raise ValueError(f"{name} contains {leaf!r}, which is no array: remove it")
        array = jnp.asarray(leaf)
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(
                f"{name} contains numbers of type {array.dtype}: convert them to floating point"
            )
        arrays.append(jax.lax.convert_element_type(array, array.dtype))  # no weak types
    return jax.tree.unflatten(structure, arrays)


def check_tolerance(tolerance: float | None, y: Tree) -> float:
    """Return the tolerance, by default that of the coarsest precision in y."""
    if tolerance is None:
        return max(newton.default_tolerance(leaf.dtype) for leaf in jax.tree.leaves(y))
    if not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
        raise ValueError(f"tolerance = {tolerance!r} must be a number between 0 and 1")
    return tolerance


def check_scalar(name: str, loss: Callable[[Tree], jax.Array], y: Tree) -> None:
    """Raise ValueError if the loss of y is not a real number."""
    value = jax.eval_shape(loss, y)
    is_number = isinstance(value, jax.ShapeDtypeStruct) and value.shape == ()
    if not is_number or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"{name} returns {_describe(value)}: it must return one real number")


def check_like_guess(name: str, function: Callable[[Tree], Tree], y: Tree) -> None:
    """Raise ValueError if the function of y does not return a pytree like y."""
    value, expected = jax.eval_shape(function, y), jax.eval_shape(lambda y: y, y)
    if _describe(value) != _describe(expected):
        raise ValueError(
            f"{name} returns {_describe(value)}, but y0 is {_describe(expected)}: both must have "
            f"the same structure, shapes and types"
        )


def _describe(tree: Tree) -> str:
    """Return the structure of a pytree with the type and shape of each leaf."""
    return str(jax.tree.map(lambda leaf: _Text(f"{leaf.dtype}{list(leaf.shape)}"), tree))


class _Text(str):
    """Text that is shown without quotes."""

    def __repr__(self) -> str:
        return str(self)
