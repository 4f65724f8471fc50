"""Validation of numbers per link and per agent: one for all, a list, or by name."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Edge = tuple[int, int]
Numbers = NDArray[np.float64]
# One number for all, a list in the order of `Network.edges`, or {(i, j): number}. In a file a link
# is "i-j"; "other" stands for all links that are not named.
PerEdge: TypeAlias = float | Sequence[float] | Numbers | dict[Any, float]
PerAgent: TypeAlias = float | Sequence[float] | Numbers | dict[Any, float]
Compute: TypeAlias = PerAgent | Literal["measured"]

ABOVE, LEAST, PART = "above 0", "0 or more", "0 or more and below 1"
RULES: dict[str, tuple[str, str]] = {  # for values per link
    "rate": ("bit/s", ABOVE),
    "latency": ("s", LEAST),
    "loss": ("", PART),
    "joules_per_bit": ("J", LEAST),
    "timeout": ("s", LEAST),
}
HOLDS = {
    ABOVE: lambda value: value > 0,
    LEAST: lambda value: value >= 0,
    PART: lambda value: 0 <= value < 1,
}


def of_edges(name: str, value: Any, edges: Sequence[Edge], one_way: bool) -> Numbers:
    """Return one number per link."""
    unit, rule = RULES[name]
    if isinstance(value, Mapping):
        value = _named(name, value, edges, one_way)
    each = _each(name, value, len(edges), f"one for each of the {len(edges)} links")
    for (i, j), one in zip(edges, each):
        if not HOLDS[rule](one):
            said = f"{one:g} {unit}".rstrip()
            raise ValueError(f"{name} of link {i}-{j} is {said}; it must be {rule}")
    return each


def _named(name: str, value: Mapping[Any, Any], edges: Sequence[Edge], one_way: bool) -> list[Any]:
    """Return the numbers of {(i, j): number, "other": number} in the order of `edges`."""
    found: dict[Edge, Any] = {}
    for key, one in value.items():
        if key == "other":
            continue
        try:
            i, j = key.split("-") if isinstance(key, str) else key
            edge = (int(i), int(j)) if one_way else (min(int(i), int(j)), max(int(i), int(j)))
        except (TypeError, ValueError):
            raise ValueError(
                f'{name}: {key!r} is no link; write (i, j), in a file "i-j", or "other"'
            ) from None
        if edge not in edges:
            raise ValueError(
                f"{name}: the network has no link {edge[0]}-{edge[1]}; its links are "
                f"{_shown([f'{a}-{b}' for a, b in edges])}"
            )
        found[edge] = one
    missing = [edge for edge in edges if edge not in found]
    if missing and "other" not in value:
        (i, j), *_ = missing
        raise ValueError(f'{name} lacks the link {i}-{j}; name it, or give "other" for the rest')
    return [found.get(edge, value.get("other")) for edge in edges]


def of_agents(name: str, value: Any, agents: int, rule: str, other: float | None = None) -> Numbers:
    """Return one number per agent; `other` for agents that a mapping does not name."""
    if isinstance(value, Mapping):
        known = {str(i): i for i in range(agents)}
        if wrong := [key for key in value if str(key) not in known and key != "other"]:
            raise ValueError(f"{name}: no agent {wrong[0]!r}; there are 0 to {agents - 1}")
        rest = value.get("other", other)
        if rest is None and len(value) < agents:
            raise ValueError(f'{name} does not name every agent; give "other" for the rest')
        found = {known[str(key)]: one for key, one in value.items() if key != "other"}
        value = [found.get(i, rest) for i in range(agents)]
    each = _each(name, value, agents, f"one for each of the {agents} agents")
    for i, one in enumerate(each):
        if not HOLDS[rule](one):
            raise ValueError(f"{name} of agent {i} is {one:g}; it must be {rule}")
    return each


def _each(name: str, value: Any, count: int, wanted: str) -> Numbers:
    """Return `value` as `count` finite numbers."""
    listed = isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1
    parts = list(value) if listed else [value] * count
    if listed and len(parts) != count:
        raise ValueError(f"{name} has {len(parts)} numbers; give a number, or {wanted}")
    for one in parts if listed else [value]:
        if not is_number(one):
            raise ValueError(f"{name} is {one!r}; give a finite number, or {wanted}")
    return np.array(parts, float)


def is_number(value: Any) -> bool:
    kind = isinstance(value, int | float | np.integer | np.floating)
    return kind and not isinstance(value, bool) and math.isfinite(value)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
