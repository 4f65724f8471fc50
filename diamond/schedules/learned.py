"""Placeholders for numbers that a method learns during the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from ..core import pytrees


@pytrees.pytree
@dataclass(frozen=True)
class Learned:
    """Placeholder of a number that every round fills in: alpha, beta, lipschitz or floor."""

    name: str = field(metadata={"static": True})


def learned_names(node: Any) -> set[str]:
    """Return the names of all learned numbers in `node`."""
    names: set[str] = set()
    _replace_learned(node, lambda place: names.add(place.name))
    return names


def with_learned_values(node: Any, values: Mapping[str, Any]) -> Any:
    """Return `node` with `values` for its learned numbers; missing ones stay open."""
    return _replace_learned(node, lambda place: values.get(place.name, place))


def _replace_learned(node: Any, value: Callable[[Learned], Any]) -> Any:
    if isinstance(node, Learned):
        return value(node)
    if is_dataclass(node) and not isinstance(node, type):
        inside = {f.name: _replace_learned(getattr(node, f.name), value) for f in fields(node)}
        return replace(node, **inside)
    return node
