"""Schedules around the steps that a run learns, for tuning."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..schedules import step_schedules

STEP_ROUNDS, WEIGHT_ROUNDS = 200.0, 10.0  # rounds after which steps and weights begin to shrink
SHRINKING_STEP, SHRINKING_WEIGHT = (
    step_schedules.power(STEP_ROUNDS ** (1 / 3), STEP_ROUNDS),
    step_schedules.power(WEIGHT_ROUNDS ** (2 / 3), WEIGHT_ROUNDS, 2 / 3),
)
WARM_UP = 25.0  # rounds in which alpha rises
SHAPES: dict[str, Any] = {
    "alpha": step_schedules.ramp(SHRINKING_STEP, WARM_UP),
    "beta": SHRINKING_STEP,
    "eta": SHRINKING_WEIGHT,
    "gamma": SHRINKING_WEIGHT,
    "theta": SHRINKING_STEP,
}
WEIGHTS = ("eta", "gamma", "theta")
DIGITS = 6


def make_schedules(numbers: Mapping[str, float], names: Iterable[str]) -> dict[str, Any]:
    """Return schedules by these names that start with `numbers`; weights start with 1."""
    starts = {name: 1.0 if name in WEIGHTS else numbers.get(name) for name in names}
    return {name: scale_schedule(SHAPES[name], c) for name, c in starts.items() if c is not None}


def scale_schedule(schedule: Any, factor: float, max_first_value: float = math.inf) -> Any:
    """Multiply a number or a schedule by `factor`, rounded.

    Its first value is at most `max_first_value`.
    """
    if max_first_value < math.inf:
        factor = min(factor, max_first_value / first_value(schedule))
    rounded = lambda value: float(f"{value * factor:.{DIGITS}g}")
    if isinstance(schedule, step_schedules.Ramp):
        return replace(schedule, of=scale_schedule(schedule.of, factor))
    if isinstance(schedule, step_schedules.Constant):
        schedule = schedule.c
    return (
        rounded(schedule)
        if isinstance(schedule, int | float)
        else replace(schedule, c=rounded(schedule.c))
    )


def first_value(schedule: Any) -> float:
    """Return a number or schedule in round 0, without its ramp."""
    return float(
        step_schedules.schedule(
            schedule.of if isinstance(schedule, step_schedules.Ramp) else schedule
        )(0)
    )
