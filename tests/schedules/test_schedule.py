"""Step sizes: the paper's formulas, clipping, and the user's own functions."""

import jax
import numpy as np
import optax
import pytest
from helpers import ESTIMATORS, final_progress, quad, ring, same_bits

import diamond
from diamond.schedules.step_schedules import (
    constant,
    paper,
    power,
    ramp,
    scaled,
    schedule,
    squared,
    weight,
)

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("t", [0, 1, 7, 1000])
def test_theorem_1(t):
    s = paper(c_alpha=10, c_beta=3, c_eta=0.1, c_gamma=0.2, omega=2)
    alpha = lambda t: 10 * (2 + t) ** (-1 / 3)
    assert s["alpha"](t) == pytest.approx(alpha(t), rel=1e-14)
    assert s["beta"](t) == pytest.approx(3 * alpha(t), rel=1e-14)
    # eta_{t+1} = c_eta alpha_t^2: the weight of a round is set by the step of the round before
    assert s["eta"](t + 1) == pytest.approx(0.1 * alpha(t) ** 2, rel=1e-14)
    assert s["gamma"](t + 1) == pytest.approx(0.2 * alpha(t) ** 2, rel=1e-14)


def test_the_published_constants_start_above_what_is_stable():
    assert float(paper(10, 10, 0.1, 0.1)["beta"](0)) == pytest.approx(100 * 2 ** (-1 / 3))  # 79


def test_weights_are_1_at_the_start_and_clipped_to_the_unit_interval():
    eta = paper(10, 10, 0.1, 0.1)["eta"]
    assert eta(1) > 1  # 0.1 alpha_0^2 = 6.3
    result = weight(eta, np.arange(2000))
    assert result[0] == result[1] == 1
    assert result[-1] == pytest.approx(float(eta(1999))) and result[-1] < 1
    assert weight(constant(-3), 1) == 0
    assert weight(constant(0), 0) == 1  # p_{-1} = 0 is no gradient to keep


def test_weights_are_clipped_inside_a_run():
    options = dict(alpha=0.02, beta=0.1, batch=3, hypergradient=ESTIMATORS["neumann_sum"])
    wild = final_progress(quad(), ring(4), diamond.diamond(eta=7, gamma=-2, **options), 5)
    tame = final_progress(quad(), ring(4), diamond.diamond(eta=1, gamma=0, **options), 5)
    assert same_bits(wild.state, tame.state)


def test_composition():
    assert scaled(2, power(3, 4, 0.5))(5) == pytest.approx(2 * 3 / 3)
    assert squared(2, 3)(9) == 18
    assert [float(ramp(3, 4)(t)) for t in (0, 1, 3, 9)] == [0.75, 1.5, 3, 3]
    assert schedule(0.25)(11) == 0.25
    assert schedule(power(1.0)) == power(1.0)


def test_numbers_are_leaves_and_functions_are_not():
    assert jax.tree.leaves(paper(1, 2, 3, 4)["eta"]) == pytest.approx([3, 1, 2, 1 / 3])
    assert jax.tree.leaves(schedule(lambda t: t)) == []


@pytest.mark.wide
def test_an_optax_schedule_is_a_step_size():
    decaying = optax.exponential_decay(init_value=0.05, transition_steps=3, decay_rate=0.5)
    algorithm = diamond.interact(decaying, 0.1, hypergradient=ESTIMATORS["neumann_sum"])
    assert algorithm.schedule_values(3)["alpha"] == pytest.approx(0.025)
    x = np.asarray(final_progress(quad(), ring(4), algorithm, 9).state.x)
    own = diamond.interact(
        lambda t: 0.05 * 0.5 ** (t / 3), 0.1, hypergradient=ESTIMATORS["neumann_sum"]
    )
    np.testing.assert_allclose(final_progress(quad(), ring(4), own, 9).state.x, x, rtol=1e-12)
    assert np.abs(x).min() > 0


@pytest.mark.parametrize("wrong", [np.nan, np.inf, "0.1", True, [0.1, 0.2], lambda t: np.nan])
def test_a_step_size_that_is_no_finite_number_is_refused(wrong):
    with pytest.raises(ValueError, match=r"^beta.* must be a finite number without quotes"):
        diamond.gt_sgd(alpha=0.1, beta=wrong)


def test_a_negative_step_size_is_refused_wherever_it_is_given():
    for wrong in (-0.1, np.float32(-0.1), power(-0.3), scaled(-2, 0.1), ramp(-1, 5), lambda t: -1):
        with pytest.raises(ValueError, match=r"^alpha = .*a step size must not be negative \(-"):
            diamond.diamond(alpha=wrong)
    with pytest.raises(ValueError, match=r"^delta = -1: a step size"):
        diamond.soba(delta=-1)
    with pytest.raises(ValueError, match=r"^alpha = -1"):
        diamond.gt_sgd(steps={"alpha": -1})
    with pytest.raises(ValueError, match=r"^scale = -1"):
        diamond.adasdbo(scale=-1)
    with pytest.raises(ValueError, match=r"^omega = 'a' must be a finite number"):
        power(0.1, omega="a")
    frozen = diamond.gt_sgd(alpha=0.0, beta=jax.numpy.float32(0.1))  # 0 leaves x where it is
    assert frozen.schedule_values(3)["alpha"] == 0
    traced = jax.jit(lambda step: diamond.gt_sgd(step, 0.1).schedule_values(0)["alpha"])
    assert traced(0.25) == 0.25
