"""Methods with differential privacy of everything that a site sends."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...core.exclusions import check_combination
from ...core.validation import as_int
from ...schedules.learned import learned_names
from .composed import ComposedAlgorithm
from .gradient_estimators import Average, Momentum, Plain
from .privacy_plan import PrivacyBudget
from .private_estimator import PrivateEstimator
from .variables import Point

CLIPPING = ("auto", "row", "whole")
SUITABLE = Plain, Average, Momentum  # estimators that keep no sums of directions


def private(
    algorithm: ComposedAlgorithm,
    epsilon: float = 8.0,
    delta: float = 1e-5,
    clip: float | Mapping[str, float] = 1.0,
    rounds: int | None = None,
    noise_multiplier: float | None = None,
    clipping: str = "auto",
) -> ComposedAlgorithm:
    """Return the method with differential privacy of everything that a site sends.

    Directions are clipped and Gaussian noise is added before anything is mixed, tracked or
    averaged. One row of one site is protected: all messages of the run together are
    (epsilon, delta)-differentially private. By row, the row may be replaced by nothing, a row whose
    direction is 0, and the number of rows is public; whole, all rows may be others
    (`docs/explanation/privacy.md`).

    Args:
        algorithm: a composed method with a given alpha; by row, with all step sizes given.
        epsilon: budget of every site.
        delta: probability with which epsilon may not hold; below 1 / rows of a site.
        clip: largest norm of a direction, by row or whole; a number, or one for each variable as
            in {"x": 1.0, "y": 0.3, "z": 0.1}.
        rounds: rounds for which the noise is calibrated; the method uses no row after them.
        noise_multiplier: noise relative to the sensitivity, instead of `rounds`: then the method
            uses no row once epsilon is spent.
        clipping: "row" clips every row's direction and samples rows independently (no lower level,
            or z is a variable); "whole" clips the direction of the batch; "auto" is by row if the
            method allows it.

    Returns:
        The private method. In `diamond.simulate` its noise is a function of the seed; a site draws
        its noise from a key of its own.

    Raises:
        ValueError: the method cannot be made private.
        ImportError: dp-accounting is not installed.

    Examples:
        >>> private = diamond.private(diamond.dsgd(alpha=0.5), epsilon=4, rounds=200, clip=1.0)
    """
    if not isinstance(algorithm, ComposedAlgorithm):
        name = type(algorithm).__name__
        check_combination({"privacy": True, "a method that is not composed of parts": True}, name)
    if isinstance(algorithm.estimator, PrivateEstimator):
        raise ValueError("the method is private already: call diamond.private once")
    optimizer, is_summed = algorithm.x.optimizer, not isinstance(algorithm.estimator, SUITABLE)
    learns_alpha = learned_names(algorithm.x.step) or (optimizer and optimizer.learns_step)
    used = {"sums of directions": is_summed, "a learned alpha": learns_alpha}
    place = f"the {type(algorithm.estimator).__name__.lower()} estimator"
    check_combination(used | {"privacy": True}, place)
    budget = _check_budget(epsilon, delta, rounds, noise_multiplier, clipping=clipping)
    clips = Point(*_clips(clip))
    return replace(algorithm, estimator=PrivateEstimator(algorithm.estimator, clips, budget))


def _check_budget(
    epsilon: float, delta: float, rounds: Any, noise_multiplier: Any, *, clipping: str
) -> PrivacyBudget:
    if not epsilon > 0:
        raise ValueError(f"epsilon = {epsilon}: a budget is above 0")
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}: a probability between 0 and 1, such as 1e-5")
    if rounds is None and noise_multiplier is None:
        raise ValueError("the noise depends on the number of rounds: give rounds=...")
    if rounds is not None:
        rounds = as_int("rounds", rounds, 1)
    if noise_multiplier is not None and not (
        noise_multiplier > 0 or (noise_multiplier == 0 and math.isinf(epsilon))
    ):
        raise ValueError(f"noise_multiplier = {noise_multiplier}: a finite epsilon needs noise")
    if clipping not in CLIPPING:
        raise ValueError(f"no clipping {clipping!r}; there are 'auto', 'row' and 'whole'")
    return PrivacyBudget(float(epsilon), float(delta), rounds, noise_multiplier, clipping)


def _clips(clip: float | Mapping[str, float]) -> list[float]:
    values = dict(clip) if isinstance(clip, Mapping) else dict.fromkeys("xyz", clip)
    if unknown := [name for name in values if name not in ("x", "y", "z")]:
        raise ValueError(f"clip has {unknown[0]!r}; the variables are x, y and z")
    if "x" not in values:
        raise ValueError("clip lacks x, whose direction is always released")
    if wrong := [c for c in values.values() if not 0 < c < math.inf]:
        raise ValueError(f"clip = {wrong[0]}: the largest norm of a direction is above 0")
    return [float(values.get(name, values["x"])) for name in "xyz"]
