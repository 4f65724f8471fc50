"""Schedules around the steps that a run chooses for itself: what is tried where they are tuned."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..numbers import schedule
from .step_sizes import FADING, SLOWING, WARM

SHAPES: dict[str, Any] = {
    "alpha": schedule.ramp(SLOWING, WARM),
    "beta": SLOWING,
    "eta": FADING,
    "gamma": FADING,
    "theta": SLOWING,
}
WEIGHTS = ("eta", "gamma", "theta")  # all found as eta
DIGITS = 6


def chosen(numbers: Mapping[str, float], names: Iterable[str]) -> dict[str, Any]:
    """The schedules by these names, as they begin with `numbers`; those of them that were found."""
    found = {name: numbers.get("eta" if name in WEIGHTS else name) for name in names}
    return {name: times(SHAPES[name], c) for name, c in found.items() if c is not None}


def times(given: Any, factor: float, most: float = math.inf) -> Any:
    """A number or a schedule times `factor`, in few digits; its first value at most `most`."""
    if most < math.inf:
        factor = min(factor, most / first(given))
    few = lambda value: float(f"{value * factor:.{DIGITS}g}")
    if isinstance(given, schedule.Ramp):
        return replace(given, of=times(given.of, factor))
    if isinstance(given, schedule.Constant):
        given = given.c
    return few(given) if isinstance(given, int | float) else replace(given, c=few(given.c))


def first(given: Any) -> float:
    """A number in round 0, or what it would be there without its ramp."""
    return float(schedule.schedule(given.of if isinstance(given, schedule.Ramp) else given)(0))
