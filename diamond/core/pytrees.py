"""Arithmetic on pytrees, leaf by leaf."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

Class = TypeVar("Class", bound=type)
T = TypeVar("T")
Tree = Any  # a pytree of arrays
Number = Any  # a Python number or a scalar array


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def pytree(cls: Class) -> Class:
    """Make a class a frozen dataclass, if it is no dataclass yet, and a pytree.

    Fields with metadata {"static": True} are part of the structure. Unlike with
    `jax.tree_util.register_dataclass`, structures of different classes never compare equal (JAX
    0.10.2 could run a program made for another class).
    """
    if "__dataclass_fields__" not in vars(cls):
        dataclass(frozen=True)(cls)
    static = [f.name for f in fields(cls) if f.metadata.get("static")]
    names = [f.name for f in fields(cls) if f.name not in static]
    keys = [jax.tree_util.GetAttrKey(name) for name in names]

    def flatten(instance: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(instance, n) for n in names), tuple(
            getattr(instance, n) for n in static
        )

    def with_keys(instance: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        leaves, static_values = flatten(instance)
        return tuple(zip(keys, leaves)), static_values

    def unflatten(static_values: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
        instance: Any = object.__new__(cls)  # skips validation, which ran when the object was made
        for name, value in zip((*names, *static), (*leaves, *static_values)):
            object.__setattr__(instance, name, value)
        return instance

    jax.tree_util.register_pytree_with_keys(cls, with_keys, unflatten, flatten)
    return cls


def add(a: Tree, b: Tree) -> Tree:
    """Return a + b."""
    return jax.tree.map(lambda a, b: a + b, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """Return a - b."""
    return jax.tree.map(lambda a, b: a - b, a, b)


def scale(c: Number, a: Tree) -> Tree:
    """Return c a, in the precision of a."""
    return jax.tree.map(lambda a: jnp.asarray(c, a.dtype) * a, a)


def axpy(c: Number, a: Tree, b: Tree) -> Tree:
    """Return c a + b, in the precision of a."""
    return jax.tree.map(lambda a, b: jnp.asarray(c, a.dtype) * a + b, a, b)


def multiply(a: Tree, b: Tree) -> Tree:
    """Return the products of the entries."""
    return jax.tree.map(jnp.multiply, a, b)


def zeros(a: Tree) -> Tree:
    """Return zeros in the shape of a."""
    return jax.tree.map(jnp.zeros_like, a)


def mapped_with(value: Tree, a: jax.Array) -> Tree:
    """Return `value` mapped over the agents of `a` under `jax.vmap`, even if it is equal for all.

    For the initial carry of a loop: if only the body makes the carry mapped, JAX traces the body,
    and the loops in it, again.
    """
    mapped = lambda v: jax.lax.select_n(np.False_, v, jnp.broadcast_to(a.astype(v.dtype), v.shape))
    return jax.tree.map(lambda v: mapped(jnp.asarray(v)), value)


def dot(a: Tree, b: Tree) -> jax.Array:
    """Return <a, b>, over all leaves."""
    products = jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), a, b))
    return jax.tree.reduce(jnp.add, products) if products else jnp.zeros(())  # 0 without leaves


def norm(a: Tree) -> jax.Array:
    """Return ||a||, over all leaves."""
    return jnp.sqrt(dot(a, a))


def power_of_two(a: Tree) -> jax.Array:
    """Return the power of two that scales max |a| to between 1/2 and 1; 1 for zeros."""
    sizes = [jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(a) if leaf.size]
    if not sizes:
        return jnp.ones(())
    largest = jax.tree.reduce(jnp.maximum, sizes)
    _, exponent = jnp.frexp(largest)
    is_scalable = jnp.isfinite(largest) & (largest > 0)
    return jnp.where(is_scalable, jnp.ldexp(jnp.ones_like(largest), -exponent), 1)


def select(choose: jax.Array, a: Tree, b: Tree) -> Tree:
    """Return a where `choose`, else b."""
    return jax.tree.map(lambda a, b: jnp.where(choose, a, b), a, b)


def finite(a: Tree) -> jax.Array:
    """Return whether every number in every leaf is finite."""
    return jax.tree.reduce(
        jnp.logical_and, jax.tree.map(lambda a: jnp.isfinite(a).all(), a), jnp.bool_(True)
    )


def normal(key: jax.Array, a: Tree) -> Tree:
    """Draw standard normal numbers in the shape of a."""
    return normal_by(jax.random.split(key, len(jax.tree.leaves(a))), a)


def normal_by(keys: jax.Array, a: Tree) -> Tree:
    """Draw standard normal numbers with a key for each leaf."""
    leaves, structure = jax.tree.flatten(a)
    drawn = [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves)]
    return jax.tree.unflatten(structure, drawn)


def named_leaves(a: Tree) -> dict[str, Any]:
    """Return the leaves of a by path, such as ".state.x[0]['w']"."""
    leaves = jax.tree_util.tree_leaves_with_path(a)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


class StateMismatch(ValueError):
    """Error: saved arrays do not match the state to restore."""


def from_named_leaves(a: Tree, leaves: Mapping[str, Any]) -> Tree:
    """Return the tree with the structure of a and the leaves named as by `named_leaves`."""
    expected = named_leaves(a)
    for name, leaf in expected.items():
        saved = leaves.get(name)
        if saved is None or (saved.shape, saved.dtype) != (leaf.shape, leaf.dtype):
            actual = "missing" if saved is None else f"{saved.dtype}{list(saved.shape)}"
            raise StateMismatch(
                f"{name} is {actual} where {leaf.dtype}{list(leaf.shape)} belongs: these arrays "
                f"are of another problem, algorithm or precision"
            )
    structure = jax.tree.structure(a)
    return jax.tree.unflatten(structure, [jnp.asarray(leaves[name]) for name in expected])


def replace_instances(node: Any, kind: type[T], value_of: Callable[[T], Any]) -> Any:
    """Return `node` with every `kind` in the fields of its dataclasses replaced by `value_of`."""
    if isinstance(node, kind):
        return value_of(node)
    if is_dataclass(node) and not isinstance(node, type):
        inside = {f.name: getattr(node, f.name) for f in fields(node)}
        return replace(
            node, **{name: replace_instances(v, kind, value_of) for name, v in inside.items()}
        )
    return node
