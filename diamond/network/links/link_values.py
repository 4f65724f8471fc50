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
EdgeValues: TypeAlias = float | Sequence[float] | Numbers | dict[Any, float]
AgentValues: TypeAlias = float | Sequence[float] | Numbers | dict[Any, float]
Compute: TypeAlias = AgentValues | Literal["measured"]

ABOVE, LEAST, SHARE = "above 0", "0 or more", "0 or more and below 1"
REQUIREMENTS: dict[str, tuple[str, str]] = {  # for values per link
    "rate": ("bit/s", ABOVE),
    "latency": ("s", LEAST),
    "loss": ("", SHARE),
    "joules_per_bit": ("J", LEAST),
    "timeout": ("s", LEAST),
}
PREDICATES = {
    ABOVE: lambda value: value > 0,
    LEAST: lambda value: value >= 0,
    SHARE: lambda value: 0 <= value < 1,
}


def edge_values(name: str, value: Any, edges: Sequence[Edge], one_way: bool) -> Numbers:
    """Return one number per link."""
    unit, requirement = REQUIREMENTS[name]
    if isinstance(value, Mapping):
        value = _values_by_edge(name, value, edges, one_way)
    values = _as_numbers(name, value, len(edges), f"one for each of the {len(edges)} links")
    for (i, j), number in zip(edges, values):
        if not PREDICATES[requirement](number):
            shown = f"{number:g} {unit}".rstrip()
            raise ValueError(f"{name} of link {i}-{j} is {shown}; it must be {requirement}")
    return values


def _values_by_edge(
    name: str, value: Mapping[Any, Any], edges: Sequence[Edge], one_way: bool
) -> list[Any]:
    """Return the numbers of {(i, j): number, "other": number} in the order of `edges`."""
    values: dict[Edge, Any] = {}
    for key, number in value.items():
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
                f"{_shorten([f'{a}-{b}' for a, b in edges])}"
            )
        values[edge] = number
    missing = [edge for edge in edges if edge not in values]
    if missing and "other" not in value:
        (i, j), *_ = missing
        raise ValueError(f'{name} lacks the link {i}-{j}; name it, or give "other" for the rest')
    return [values.get(edge, value.get("other")) for edge in edges]


def agent_values(
    name: str, value: Any, agents: int, requirement: str, other: float | None = None
) -> Numbers:
    """Return one number per agent; `other` for agents that a mapping does not name."""
    if isinstance(value, Mapping):
        agent_numbers = {str(i): i for i in range(agents)}
        if unknown := [key for key in value if str(key) not in agent_numbers and key != "other"]:
            raise ValueError(f"{name}: no agent {unknown[0]!r}; there are 0 to {agents - 1}")
        default = value.get("other", other)
        if default is None and len(value) < agents:
            raise ValueError(f'{name} does not name every agent; give "other" for the rest')
        values = {
            agent_numbers[str(key)]: number for key, number in value.items() if key != "other"
        }
        value = [values.get(i, default) for i in range(agents)]
    values_of_agents = _as_numbers(name, value, agents, f"one for each of the {agents} agents")
    for i, number in enumerate(values_of_agents):
        if not PREDICATES[requirement](number):
            raise ValueError(f"{name} of agent {i} is {number:g}; it must be {requirement}")
    return values_of_agents


def _as_numbers(name: str, value: Any, count: int, alternative: str) -> Numbers:
    """Return `value` as `count` finite numbers."""
    is_list = isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1
    numbers = list(value) if is_list else [value] * count
    if is_list and len(numbers) != count:
        raise ValueError(f"{name} has {len(numbers)} numbers; give a number, or {alternative}")
    for number in numbers if is_list else [value]:
        if not is_number(number):
            raise ValueError(f"{name} is {number!r}; give a finite number, or {alternative}")
    return np.array(numbers, float)


def is_number(value: Any) -> bool:
    kind = isinstance(value, int | float | np.integer | np.floating)
    return kind and not isinstance(value, bool) and math.isfinite(value)


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
