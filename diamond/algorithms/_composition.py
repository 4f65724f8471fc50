"""Composition of methods from parts, with learned step sizes if none are given."""

from collections.abc import Mapping
from typing import Any, Literal

from ..core.pytrees import Number
from ..core.validation import as_int
from ..schedules.learned import Learned
from ..schedules.step_schedules import AtLeast, Constant, Power, Schedule, schedule, step_size
from .parts import ComposedAlgorithm, Variable
from .parts.communication import communication_rule
from .parts.communication_rules import Order
from .parts.gradient_estimators import estimator_by_name

Step = Schedule | Number | None  # None: learned
STEP_SIZES = "alpha", "beta", "delta"  # the other numbers are weights, limited to [0, 1]
Steps = Literal["auto"] | Mapping[str, Schedule | Number]
INNER = 10  # steps of y per step of x
WEIGHT = Power(10 ** (2 / 3), 10.0, 2 / 3)  # (1 + t / 10)^(-2/3), weight of the newest direction
AVERAGE = AtLeast(0.3, WEIGHT)  # the same for a moving average, which lags by 1 / weight rounds


def choose(
    steps: Steps, order: Order | None, **arguments: Step
) -> tuple[Order, dict[str, Schedule]]:
    """Choose the order of mixing, and a schedule for each of `arguments`.

    A value of None is taken from `steps` if that is a mapping with this name. Otherwise alpha, beta
    and delta are learned during the run, and weights decay as (1 + t / 10)^(-2/3), those of
    averages down to 0.3. Without an `order`, learned steps mix after the step ("atc"), and a given
    alpha mixes as in the paper.
    """
    if not isinstance(steps, Mapping) and steps != "auto":
        raise ValueError(
            f"steps = {steps!r}: give 'auto', or a mapping such as diamond.schedules.paper(...)"
        )
    given_steps = {} if steps == "auto" else dict(steps)
    if unknown := set(given_steps) - set(arguments):
        raise ValueError(
            f"steps has {', '.join(sorted(unknown))}, which this algorithm does not take; it has "
            f"{', '.join(arguments)}"
        )
    values = {
        name: given_steps.get(name) if value is None else value for name, value in arguments.items()
    }
    order = order or ("atc" if values["alpha"] is None else "paper")
    if values.get("delta", 0) is None:  # the step of z equals that of y
        values["delta"] = values["beta"]
    return order, {name: _schedule(name, value) for name, value in values.items()}


def _schedule(name: str, value: Step) -> Schedule:
    if value is None:
        learned = Learned("beta" if name == "delta" else name)
        weight = AVERAGE if name == "theta" else WEIGHT
        return Constant(learned) if name in STEP_SIZES else weight
    return step_size(name, value) if name in STEP_SIZES else schedule(value, name)


def inner_steps(inner: int | None) -> Any:
    """Return the number of steps of an inner loop."""
    return INNER if inner is None else as_int("inner", inner, 1)


def check_unused_batch(batch: int) -> int:
    """Check `batch`, which methods with gradients on all rows accept but do not use."""
    as_int("batch", batch, 1)
    return 1


def compose_parts(
    directions: Any,
    estimator: str,
    communication: str,
    numbers: Mapping[str, Step],
    *,
    batch: int,
    order: Order | None,
    steps: Steps,
    relax: Number | None = None,
    period: int | None = None,
    update_order: str = "xyz",
    inner: int | None = 1,
    lower_levels: tuple[str, ...] = ("personal",),
) -> ComposedAlgorithm:
    """Compose a method of these parts; `communication` names the rules of x, y and z."""
    order, s = choose(steps, order, **numbers)
    choices = zip("xyz", STEP_SIZES, communication.split())
    return ComposedAlgorithm(
        directions,
        estimator_by_name(estimator, s, period),
        **{
            name: Variable(s[step], communication_rule(rule, order, relax))
            for name, step, rule in choices
        },
        batch=batch,
        update_order=update_order,
        inner=inner_steps(inner) if "inner" in update_order else inner,
        lower_levels=lower_levels,
    )
