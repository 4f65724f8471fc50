"""Which step sizes an algorithm takes where its user gave none."""

from collections.abc import Mapping
from typing import Literal

from .. import steps as automatic
from ..schedule import Number, Schedule, schedule
from ..steps import Order

Given = Schedule | Number | None
Steps = Literal["auto"] | Mapping[str, Schedule | Number]


def choose(
    steps: Steps, order: Order | None, lags: int = 1, whole: bool = False, **given: Given
) -> tuple[Order, dict[str, Schedule]]:
    """The order of mixing, and a schedule for each name of `given`.

    One that is None comes from `steps` if it is a mapping with that name, and from `diamond.steps`
    otherwise. Without an `order`, steps that choose themselves mix after the step ("atc", where
    they may be larger), and a given alpha as the paper does. `whole`: gradients are of all rows.
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
    noise: automatic.Noise = "none" if whole else "momentum" if "eta" in given else "plain"
    rules = {
        "alpha": lambda: automatic.alpha(order, lags, noise),
        "beta": automatic.beta,
        "eta": automatic.eta,
        "gamma": automatic.eta,
    }
    if found.get("delta", 0) is None:  # the step of z is that of y
        found["delta"] = rules["beta"]() if found["beta"] is None else found["beta"]
    return order, {n: rules[n]() if v is None else schedule(v) for n, v in found.items()}
