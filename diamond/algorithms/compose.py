"""Composition of any method of the family from its five choices."""

import re
from typing import Any, Literal

from ..hypergradient import Hypergradient, neumann
from ..schedules.step_schedules import Number, Schedule
from ._composition import Order, Step, Steps, composed
from .parts import ComposedAlgorithm
from .parts.directions import along

__all__ = ["compose"]

Directions = Literal["implicit", "carried", "penalty", "gradient"]
Estimator = Literal["plain", "full", "average", "momentum", "recursive", "saga"]
Move = Literal["local", "gossip", "gt", "extra", "ed", "push", "push_gt"]
LowerLevel = Literal["personal", "common", "none"]


def compose(
    directions: Directions = "implicit",
    estimator: Estimator = "plain",
    x: Move = "gt",
    y: Move = "local",
    z: Move | None = None,
    update_order: str = "xyz",
    lower_level: LowerLevel | None = None,
    alpha: Step = None,
    beta: Step = None,
    delta: Step = None,
    eta: Step = None,
    gamma: Step = None,
    theta: Step = None,
    lam: Schedule | Number = 20.0,
    period: int | None = None,
    inner: int | None = None,
    batch: int = 64,
    hypergradient: Hypergradient = neumann(),
    order: Order = "atc",
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Compose a method of these parts (`diamond.algorithms.parts`) in any combination.

    Args:
        directions: "implicit" (x along `hypergradient`), "carried" (z is a variable), "penalty"
            (with `lam`), "gradient" (no lower level).
        estimator: "plain", "full" (all rows), "average" (theta), "momentum" (eta and gamma),
            "recursive" (all rows every `period` rounds), "saga".
        x, y, z: move of each variable: "local", "gossip", "gt", "extra", "ed", "push", "push_gt"; z
            by default as y.
        update_order: "xyz" at once, "y z x" one after another, "y*10 z*10 x" in inner loops;
            "y*inner x" uses `inner`, by default 10.
        lower_level: "personal", "common" or "none"; by default derived from the move of y.
        alpha, beta, delta: steps of x, y and z, numbers or schedules; None: learned.
        eta, gamma, theta: weights of the estimator, numbers or schedules.
        lam: penalty weight, a number or a schedule.
        batch: rows in a mini-batch.
        order: "atc" mixes after the step, "paper" before it.
        steps: "auto", or a mapping with values for numbers that are None.

    Returns:
        The method.
    """
    alone = directions == "gradient"
    z = y if z is None else z
    lower_level = lower_level or ("none" if alone else "personal" if y == "local" else "common")
    if lower_level == "personal" and (y, z) != ("local", "local"):
        raise ValueError("a personal lower level is each agent's own: y and z must be 'local'")
    if lower_level == "common" and "local" in (y, z):
        raise ValueError("a common lower level must be agreed upon: y and z cannot be 'local'")
    if x == "local":
        raise ValueError("x must be agreed upon: it cannot be 'local'")
    fixed = re.search(r"y\w*\*(\d+)", update_order)  # steps of y per step of x
    times = inner if "inner" in update_order else int(fixed.group(1)) if fixed else 1
    lags = 2 if directions in ("carried", "penalty") else 1
    named: dict[str, Any] = {"alpha": alpha} | ({} if alone else {"beta": beta})
    named |= {"delta": delta} if lags == 2 else {}
    named |= {"theta": theta} if estimator == "average" else {}
    named |= {"eta": eta, "gamma": gamma} if estimator == "momentum" else {}
    given = {"beta": beta, "delta": delta, "eta": eta, "gamma": gamma, "theta": theta}
    if unused := [name for name, value in given.items() if value is not None and name not in named]:
        raise ValueError(f"{unused[0]} is no number of these parts; they have {', '.join(named)}")
    return composed(
        along(directions, hypergradient, lam),
        estimator,
        x if alone else f"{x} {y} {z}" if lags == 2 else f"{x} {y}",
        named,
        batch,
        order,
        steps,
        period=period,
        update_order="x" if alone else update_order,
        inner=times,
        lower_levels=(lower_level,)
        if lower_level != "personal" or lags == 2
        else ("personal", "none"),
    )
