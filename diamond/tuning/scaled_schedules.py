"""Schedules around the steps that a run learns, for tuning."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..schedules import step_schedules

SLOW, FADE = 200.0, 10.0  # rounds after which steps and weights begin to shrink
SLOWING, FADING = (
    step_schedules.power(SLOW ** (1 / 3), SLOW),
    step_schedules.power(FADE ** (2 / 3), FADE, 2 / 3),
)
WARM = 25.0  # rounds in which alpha rises
SHAPES: dict[str, Any] = {
    "alpha": step_schedules.ramp(SLOWING, WARM),
    "beta": SLOWING,
    "eta": FADING,
    "gamma": FADING,
    "theta": SLOWING,
}
WEIGHTS = ("eta", "gamma", "theta")
DIGITS = 6


def chosen(numbers: Mapping[str, float], names: Iterable[str]) -> dict[str, Any]:
    """Return schedules by these names that start with `numbers`; weights start with 1."""
    found = {name: 1.0 if name in WEIGHTS else numbers.get(name) for name in names}
    return {name: times(SHAPES[name], c) for name, c in found.items() if c is not None}


def times(given: Any, factor: float, most: float = math.inf) -> Any:
    """Multiply a number or a schedule by `factor`, rounded; its first value is at most `most`."""
    if most < math.inf:
        factor = min(factor, most / first(given))
    few = lambda value: float(f"{value * factor:.{DIGITS}g}")
    if isinstance(given, step_schedules.Ramp):
        return replace(given, of=times(given.of, factor))
    if isinstance(given, step_schedules.Constant):
        given = given.c
    return few(given) if isinstance(given, int | float) else replace(given, c=few(given.c))


def first(given: Any) -> float:
    """Return a number or schedule in round 0, without its ramp."""
    return float(
        step_schedules.schedule(given.of if isinstance(given, step_schedules.Ramp) else given)(0)
    )
