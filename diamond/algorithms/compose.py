"""Composition of any method of the family from its five choices."""

import re
from typing import Any, Literal

from ..core.pytrees import Number
from ..hypergradient import Hypergradient, neumann
from ..schedules.step_schedules import Schedule
from ._composition import Step, Steps, compose_parts
from .parts import ComposedAlgorithm
from .parts.communication_rules import Order
from .parts.directions import directions_by_name

__all__ = ["compose"]

DirectionsName = Literal["implicit", "carried", "penalty", "gradient"]
EstimatorName = Literal["plain", "full", "average", "momentum", "optimistic", "recursive", "saga"]
CommunicationName = Literal["local", "gossip", "gt", "extra", "ed", "push", "push_gt"]
LowerLevel = Literal["personal", "common", "none"]


def compose(
    directions: DirectionsName = "implicit",
    estimator: EstimatorName = "plain",
    x: CommunicationName = "gt",
    y: CommunicationName = "local",
    z: CommunicationName | None = None,
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
            "optimistic" (2 d_t - d_{t-1}), "recursive" (all rows every `period` rounds), "saga".
        x, y, z: move of each variable: "local", "gossip", "gt", "extra", "ed", "push", "push_gt"; z
            by default as y.
        update_order: "xyz" at once, "y z x" one after another, `"y*10 z*10 x"` in inner loops;
            `"y*inner x"` uses `inner`, by default 10.
        lower_level: "personal", "common" or "none"; by default derived from the move of y.
        alpha, beta, delta: steps of x, y and z, numbers or schedules; None: learned.
        eta, gamma, theta: weights of the estimator, numbers or schedules.
        lam: penalty weight, a number or a schedule.
        batch: rows in a mini-batch.
        order: "atc" mixes after the step, "paper" before it.
        steps: "auto", or a mapping with values for numbers that are None.

    Returns:
        The method.

    Examples:
        >>> own = diamond.compose(directions="implicit", estimator="momentum", x="ed", y="local")
        >>> isinstance(own, diamond.interface.Method)
        True
    """
    has_no_lower_level = directions == "gradient"
    z = y if z is None else z
    lower_level = lower_level or (
        "none" if has_no_lower_level else "personal" if y == "local" else "common"
    )
    if lower_level == "personal" and (y, z) != ("local", "local"):
        raise ValueError("a personal lower level is each agent's own: y and z must be 'local'")
    if lower_level == "common" and "local" in (y, z):
        raise ValueError("a common lower level must be agreed upon: y and z cannot be 'local'")
    if x == "local":
        raise ValueError("x must be agreed upon: it cannot be 'local'")
    match = re.search(r"y\w*\*(\d+)", update_order)  # steps of y per step of x
    inner_steps = inner if "inner" in update_order else int(match.group(1)) if match else 1
    lower_variables = 2 if directions in ("carried", "penalty") else 1
    numbers: dict[str, Any] = {"alpha": alpha} | ({} if has_no_lower_level else {"beta": beta})
    numbers |= {"delta": delta} if lower_variables == 2 else {}
    numbers |= {"theta": theta} if estimator == "average" else {}
    numbers |= {"eta": eta, "gamma": gamma} if estimator == "momentum" else {}
    optional_numbers = {"beta": beta, "delta": delta, "eta": eta, "gamma": gamma, "theta": theta}
    if unused := [
        name
        for name, value in optional_numbers.items()
        if value is not None and name not in numbers
    ]:
        raise ValueError(f"{unused[0]} is no number of these parts; they have {', '.join(numbers)}")
    return compose_parts(
        directions_by_name(directions, hypergradient, lam),
        estimator,
        x if has_no_lower_level else f"{x} {y} {z}" if lower_variables == 2 else f"{x} {y}",
        numbers,
        batch=batch,
        order=order,
        steps=steps,
        period=period,
        update_order="x" if has_no_lower_level else update_order,
        inner=inner_steps,
        lower_levels=(lower_level,)
        if lower_level != "personal" or lower_variables == 2
        else ("personal", "none"),
    )
