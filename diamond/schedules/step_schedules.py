"""Schedules: step sizes and momentum weights as functions of the round t.

The numbers inside a schedule are arguments of the compiled program, so other numbers need no
compilation. Any callable of t (an optax schedule, a lambda) is a schedule too; there, another
function object compiles again.
"""

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.pytrees import Number

Schedule = Callable[[Number], Number]


@pytrees.pytree
class Constant:
    """The schedule c."""

    c: Number

    def __call__(self, t: Number) -> Number:
        return self.c


@pytrees.pytree
class Power:
    """The schedule c (omega + t)^-exponent."""

    c: Number
    omega: Number
    exponent: Number

    def __call__(self, t: Number) -> Number:
        return self.c * (self.omega + jnp.asarray(t, float)) ** -self.exponent


@pytrees.pytree
class Scaled:
    """The schedule c s_t."""

    c: Number
    of: Schedule

    def __call__(self, t: Number) -> Number:
        return self.c * self.of(t)


@pytrees.pytree
class Squared:
    """The schedule c s_{t-1}^2."""

    c: Number
    of: Schedule

    def __call__(self, t: Number) -> Number:
        return self.c * self.of(jnp.maximum(jnp.asarray(t, float) - 1, 0)) ** 2


@pytrees.pytree
class AtLeast:
    """The schedule max(c, s_t)."""

    c: Number
    of: Schedule

    def __call__(self, t: Number) -> Number:
        return jnp.maximum(self.c, self.of(t))


@pytrees.pytree
class Delayed:
    """The schedule s_{t - rounds}, and s_0 before."""

    of: Schedule
    rounds: Number

    def __call__(self, t: Number) -> Number:
        return self.of(jnp.maximum(jnp.asarray(t, float) - self.rounds, 0))


@pytrees.pytree
class Ramp:
    """The schedule s_t min(1, (1 + t) / rounds)."""

    of: Schedule
    rounds: Number

    def __call__(self, t: Number) -> Number:
        return self.of(t) * jnp.minimum(1.0, (1 + jnp.asarray(t, float)) / self.rounds)


@pytrees.pytree
class Custom:
    """The schedule of a user function."""

    function: Schedule = field(metadata={"static": True})

    def __call__(self, t: Number) -> Number:
        try:
            return self.function(t)
        except Exception as error:
            raise ValueError(
                f"a step size or weight given as a function of the round raised "
                f"{type(error).__name__} ({error}); it must return a number for every round t, "
                f"which is a traced array: use jnp.where instead of if"
            ) from error


def constant(c: Number) -> Constant:
    """Make the schedule c in every round."""
    return Constant(number("c", c))


def power(c: Number, omega: Number = 2.0, exponent: Number = 1 / 3) -> Power:
    """Make c (omega + t)^-exponent: alpha_t of Theorem 1, for the exponent 1/3."""
    return Power(number("c", c), number("omega", omega), number("exponent", exponent))


def scaled(c: Number, of: Schedule | Number) -> Scaled:
    """Make c s_t: beta_t = c_beta alpha_t of Theorem 1."""
    return Scaled(number("c", c), schedule(of))


def squared(c: Number, of: Schedule | Number) -> Squared:
    """Make c s_{t-1}^2: eta_{t+1} = c_eta alpha_t^2 of Theorem 1 (and c s_0^2 at t = 0)."""
    return Squared(number("c", c), schedule(of))


def ramp(of: Schedule | Number, rounds: Number) -> Ramp:
    """Make a linear warm-up of s_t over `rounds` rounds."""
    return Ramp(schedule(of), number("rounds", rounds))


def paper(
    c_alpha: Number, c_beta: Number, c_eta: Number, c_gamma: Number, omega: Number = 2.0
) -> dict[str, Schedule]:
    """Make the four schedules of Theorem 1, as keyword arguments.

    alpha_t = c_alpha (omega + t)^(-1/3), beta_t = c_beta alpha_t, eta_{t+1} = c_eta alpha_t^2,
    gamma_{t+1} = c_gamma alpha_t^2.
    """
    alpha = power(c_alpha, omega)
    return {
        "alpha": alpha,
        "beta": scaled(c_beta, alpha),
        "eta": squared(c_eta, alpha),
        "gamma": squared(c_gamma, alpha),
    }


def bsa(c_alpha: Number, c_beta: Number) -> dict[str, Schedule]:
    """Make BSA's alpha_t = c_alpha (1 + t)^(-1/2), beta_t = c_beta (1 + t)^(-1/2) (public code)."""
    return {"alpha": power(c_alpha, 1.0, 1 / 2), "beta": power(c_beta, 1.0, 1 / 2)}


def ttsa(c_alpha: Number, c_beta: Number) -> dict[str, Schedule]:
    """Make TTSA's alpha_t = c_alpha (1 + t)^(-3/5), beta_t = c_beta (1 + t)^(-2/5)."""
    return {"alpha": power(c_alpha, 1.0, 3 / 5), "beta": power(c_beta, 1.0, 2 / 5)}


def schedule(value: Schedule | Number, name: str = "a schedule") -> Schedule:
    """Convert a number or function of t to a schedule; `name` is the argument in errors."""
    if isinstance(value, Constant | Power | Scaled | Squared | Ramp | Custom):
        return value
    return Custom(value) if callable(value) else Constant(number(name, value))


def step_size(name: str, value: Schedule | Number) -> Schedule:
    """Return the schedule of a step size; raise ValueError if it is negative.

    A user function is checked in round 0; errors that the function raises are left to the run.
    """
    step_schedule = schedule(value, name)
    for factor in _factors(name, step_schedule):
        if factor < 0:
            raise ValueError(
                f"{name} = {value}: a step size must not be negative ({factor:g}), since each "
                f"step goes against the gradient already; give a positive number"
            )
    return step_schedule


def _factors(name: str, schedule: Any) -> list[float]:
    """Return the numbers whose product has the sign of the schedule, if known."""
    if isinstance(schedule, Custom):
        try:
            first = schedule(0)
        except ValueError:
            return []
        factors = [number(f"{name}, a function of t, in round 0", first)]
    else:
        factors = [schedule.c] if hasattr(schedule, "c") else []
    factors = [float(c) for c in factors if _is_known(c)]
    return factors + (_factors(name, schedule.of) if hasattr(schedule, "of") else [])


def _is_known(value: Any) -> bool:
    """Return whether a number is known: not traced, and not left to the run."""
    return hasattr(value, "__float__") and not isinstance(value, jax.core.Tracer)


def number(name: str, value: Any) -> Number:
    """Return `value` in floating point; raise ValueError if it is not a finite number."""
    try:
        traced = isinstance(value, jax.core.Tracer)
        finite = traced or (not isinstance(value, bool | str) and math.isfinite(value))
    except (TypeError, ValueError, OverflowError):
        finite = False
    if not finite:
        raise ValueError(
            f"{name} = {value!r} must be a finite number without quotes, such as 0.1; a step size "
            f"may also be a function of the round t, such as diamond.schedules.power(0.3)"
        )
    return value * 1.0


def step_factor(name: str, value: Number) -> Number:
    """Return a factor of steps as float; raise ValueError if negative or not finite."""
    step_size(name, value)
    return number(name, value)


def weight(eta: Schedule, t: Number) -> jax.Array:
    """Return a momentum weight: eta_t limited to [0, 1], and 1 in round 0."""
    return jnp.where(jnp.asarray(t) == 0, 1.0, jnp.clip(eta(t), 0.0, 1.0))
