"""Dataclasses as pytrees: as JAX registers them, and never one for another."""

from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import jax
import pytest

import diamond
from diamond.algorithms.parts.communication_rules import Gossip, Tracking
from diamond.core import pytrees

pytestmark = pytest.mark.quick


def pair(register):
    """The same dataclass twice."""

    def make(name):
        @dataclass(frozen=True)
        class Made:
            x: Any
            kind: str = field(default="a", metadata={"static": True})

        Made.__name__ = name
        return register(Made)

    return make("One"), make("Other")


def test_they_are_flattened_as_jax_does_it():
    ours, _ = pair(pytrees.pytree)
    theirs, _ = pair(jax.tree_util.register_dataclass)
    one, two = ours({"b": 1.0, "a": (2.0,)}, "z"), theirs({"b": 1.0, "a": (2.0,)}, "z")
    assert pytrees.named_leaves(one) == pytrees.named_leaves(two) and jax.tree.leaves(one) == [
        2.0,
        1.0,
    ]
    assert jax.tree.map(lambda a: a + 1, one) == ours({"b": 2.0, "a": (3.0,)}, "z")
    assert jax.tree.structure(one) != jax.tree.structure(ours(one.x, "y"))


def test_a_class_becomes_a_frozen_dataclass():
    @pytrees.pytree
    class Point:
        x: Any
        kind: str = field(default="a", metadata={"static": True})

    point = jax.tree.map(lambda a: a + 1, Point(1.0))
    assert point == Point(2.0) and jax.tree.leaves(point) == [2.0]
    with pytest.raises(FrozenInstanceError):
        point.x = 3.0


@pytest.mark.wide
def test_classes_with_the_same_fields_are_never_taken_for_each_other():
    one, other = pair(pytrees.pytree)
    assert jax.tree.structure(one(1.0)) != jax.tree.structure(other(1.0))
    assert jax.tree.structure(Gossip("paper")) != jax.tree.structure(Tracking("paper"))
    made = [diamond.dsgd(0.1, 0.1), diamond.gt_sgd(0.1, 0.1)]
    assert jax.tree.structure(made[0]) != jax.tree.structure(made[1])
    for _ in range(50):  # by chance, JAX's own confuse one in fifty
        program = jax.jit(lambda a, one=one: 1.0 if isinstance(a, one) else 2.0)
        assert (program(one(0.0)), program(other(0.0))) == (1.0, 2.0)
        one, other = pair(pytrees.pytree)
