"""Placeholders for numbers that a method learns during the run.

`Learned` is for a number that every round fills in from the state of its agent; `Deferred`
(`schedules.deferred`) for one that the agents agree on before round 0.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..core import pytrees


@pytrees.pytree
class Learned:
    """Placeholder of a number that every round fills in: alpha, beta, lipschitz or floor."""

    name: str = field(metadata={"static": True})


def learned_names(node: Any) -> set[str]:
    """Return the names of all learned numbers in `node`."""
    names: set[str] = set()
    pytrees.replace_instances(node, Learned, lambda place: names.add(place.name))
    return names


def with_learned_values(node: Any, values: Mapping[str, Any]) -> Any:
    """Return `node` with `values` for its learned numbers; missing ones stay open."""
    return pytrees.replace_instances(node, Learned, lambda place: values.get(place.name, place))
