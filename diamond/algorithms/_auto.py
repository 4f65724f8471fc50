"""Compose a method of parts, with learned step sizes where its user gave none."""

from collections.abc import Mapping
from typing import Any, Literal

from ..core.whole_numbers import whole
from ..numbers.learned import Learned
from ..numbers.schedule import AtLeast, Constant, Number, Power, Schedule, schedule, step_size
from .parts import Loop, Variable
from .parts.estimators import estimated
from .parts.moves import Order, move

Step = Schedule | Number | None  # None: learned
STEPS = "alpha", "beta", "delta"  # the others are weights, which rounds clip to [0, 1]
Steps = Literal["auto"] | Mapping[str, Schedule | Number]
INNER = 10  # steps of y for one of x
WEIGHT = Power(10 ** (2 / 3), 10.0, 2 / 3)  # (1 + t / 10)^(-2/3), of the newest direction
AVERAGE = AtLeast(0.3, WEIGHT)  # the same in a moving average, which lags by 1 / weight rounds


def choose(steps: Steps, order: Order | None, **given: Step) -> tuple[Order, dict[str, Schedule]]:
    """The order of mixing, and a schedule for each name of `given`.

    One that is None comes from `steps` if it is a mapping with that name. Otherwise alpha, beta and
    delta are learned while the method runs, and weights shrink as (1 + t / 10)^(-2/3), those of
    averages to 0.3. Without an
    `order`, learned steps mix after the step ("atc"), and a given alpha as the paper does.
    """
    if not isinstance(steps, Mapping) and steps != "auto":
        raise ValueError(
            f"steps = {steps!r}: give 'auto', or a mapping such as diamond.schedule.paper(...)"
        )
    known = {} if steps == "auto" else dict(steps)
    if unknown := set(known) - set(given):
        raise ValueError(
            f"steps has {', '.join(sorted(unknown))}, which this algorithm does not take; it has "
            f"{', '.join(given)}"
        )
    found = {name: known.get(name) if value is None else value for name, value in given.items()}
    order = order or ("atc" if found["alpha"] is None else "paper")
    if found.get("delta", 0) is None:  # the step of z is that of y
        found["delta"] = found["beta"]
    return order, {name: _schedule(name, value) for name, value in found.items()}


def _schedule(name: str, value: Step) -> Schedule:
    if value is None:
        learned = Learned("beta" if name == "delta" else name)
        weight = AVERAGE if name == "theta" else WEIGHT
        return Constant(learned) if name in STEPS else weight
    return step_size(name, value) if name in STEPS else schedule(value, name)


def loops(inner: int | None) -> Any:
    """How many steps an inner loop makes."""
    return INNER if inner is None else whole("inner", inner, 1)


def all_rows(batch: int) -> int:
    """The batch of a method that takes gradients on all rows: `batch` is checked, and not used."""
    whole("batch", batch, 1)
    return 1


def composed(
    directions: Any,
    estimator: str,
    moves: str,
    numbers: Mapping[str, Step],
    batch: int,
    order: Order | None,
    steps: Steps,
    *,
    relax: Number | None = None,
    period: int | None = None,
    plan: str = "xyz",
    inner: int | None = 1,
    solves: tuple[str, ...] = ("personal",),
) -> Loop:
    """The method of these parts; `moves` names how x, y and z are agreed upon, in this order."""
    order, s = choose(steps, order, **numbers)
    each = zip("xyz", STEPS, moves.split())
    return Loop(
        directions,
        estimated(estimator, s, period),
        **{name: Variable(s[step], move(how, order, relax)) for name, step, how in each},
        batch=batch,
        plan=plan,
        inner=loops(inner) if "inner" in plan else inner,
        solves=solves,
    )
