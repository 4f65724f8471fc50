"""Which step sizes a method takes where its user gave none."""

from collections.abc import Mapping
from typing import Any, Literal

from ..auto import inverse
from ..auto import step_sizes as automatic
from ..auto.step_sizes import Order
from ..core.whole_numbers import whole
from ..hypergradient import Hypergradient, neumann
from ..numbers.schedule import Number, Schedule, schedule, step_size

Step = Schedule | Number | None  # None: chooses itself
STEPS = "alpha", "beta", "delta"  # the others are weights, which rounds clip to [0, 1]
Steps = Literal["auto"] | Mapping[str, Schedule | Number]


def choose(
    steps: Steps,
    order: Order | None,
    lags: int = 1,
    full: bool = False,
    inner: Any = 1,
    x: str = "gt",
    y: str = "local",
    newton: bool = False,
    **given: Step,
) -> tuple[Order, dict[str, Schedule]]:
    """The order of mixing, and a schedule for each name of `given`.

    One that is None comes from `steps` if it is a mapping with that name, and from
    `diamond.auto.step_sizes` otherwise. Without an `order`, steps that choose themselves mix after
    the step ("atc", where they may be larger), and a given alpha as the paper does. `full`:
    gradients are of all rows. `inner`: how many steps y makes for one of x. `x`, `y`: how they are
    agreed upon, which limits their steps. `newton`: y may move along [g_yy]^-1 v, if the run
    chooses so.
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
    noise: automatic.Noise = "average" if "theta" in given else "plain"
    noise = "none" if full else "momentum" if "eta" in given else noise
    weight = automatic.theta if "theta" in given else automatic.eta
    rules = {
        "alpha": lambda: automatic.alpha(order, lags, noise, inner, x, y, newton),
        "beta": lambda: automatic.beta(y, newton),
        "eta": automatic.eta,
        "gamma": weight,
        "theta": weight,
    }
    if found.get("delta", 0) is None:  # the step of z is that of y
        found["delta"] = rules["beta"]() if found["beta"] is None else found["beta"]
    given_one = lambda n, v: step_size(n, v) if n in STEPS else schedule(v, n)
    return order, {n: rules[n]() if v is None else given_one(n, v) for n, v in found.items()}


def loops(inner: int | None, y: str = "local") -> Any:
    """How often an inner loop goes round: a number, or found by the run from how y moves."""
    return automatic.inner(y) if inner is None else whole("inner", inner, 1)


def inverted(
    hypergradient: Hypergradient | None, steps: Steps, alpha: Step, beta: Step
) -> tuple[Hypergradient, Any]:
    """The hypergradient, and whether y moves along [g_yy]^-1 v.

    One that is given stays as it is. None: the run chooses, if alpha and beta choose themselves;
    with steps that are given it is the chain of eq. (5), whose steps they are.
    """
    if hypergradient is not None:
        return hypergradient, False
    known = {} if steps == "auto" or not isinstance(steps, Mapping) else steps
    if any(value is not None for value in (alpha, beta, known.get("alpha"), known.get("beta"))):
        return neumann(), False
    return inverse.chosen(), inverse.solved()
