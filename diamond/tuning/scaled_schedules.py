"""Schedules around the steps that a run learns, for tuning."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..numbers import schedule

SLOW, FADE = 200.0, 10.0  # rounds after which steps and weights begin to shrink
SLOWING, FADING = (
    schedule.power(SLOW ** (1 / 3), SLOW),
    schedule.power(FADE ** (2 / 3), FADE, 2 / 3),
)
WARM = 25.0  # rounds in which alpha rises
SHAPES: dict[str, Any] = {
    "alpha": schedule.ramp(SLOWING, WARM),
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
    if isinstance(given, schedule.Ramp):
        return replace(given, of=times(given.of, factor))
    if isinstance(given, schedule.Constant):
        given = given.c
    return few(given) if isinstance(given, int | float) else replace(given, c=few(given.c))


def first(given: Any) -> float:
    """Return a number or schedule in round 0, without its ramp."""
    return float(schedule.schedule(given.of if isinstance(given, schedule.Ramp) else given)(0))
