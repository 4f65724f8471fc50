"""First-order steps before quasi-Newton steps, where x starts at random."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import quad, ring
from units import in_units

import diamond
from diamond.algorithms.parts.opening import ROUNDS, first_order_opening
from diamond.algorithms.parts.quasi_newton import QuasiNewton, most_rows
from diamond.algorithms.parts.solver import Solver
from diamond.algorithms.solve import solve
from diamond.problem import Problem
from diamond.schedules.deferred import agent_count, specialize
from diamond.schedules.step_schedules import Constant

SHORT = 25  # rounds


def with_start(given, start):
    parts = given.rows["train"], given.rows["valid"]
    return Problem(given.upper, given.lower, start, *parts)


@pytest.fixture(scope="module")
def given():
    """Quadratic functions; x starts at random."""
    normal = lambda key: jax.random.normal(key, (3,))
    return with_start(quad(noise=0.1), lambda key: (normal(key), quad().start(0)[1]))


def method(step=None, rounds=SHORT):
    opening = replace(first_order_opening(3), rounds=rounds)
    if step is not None:
        x = replace(opening.method.x, step=Constant(step), optimizer=None)
        opening = replace(opening, method=replace(opening.method, x=x))
    return QuasiNewton(most_rows, agent_count, tolerance=1e-7, opening=opening, batch=3)


def test_it_belongs_to_a_random_start_and_personal_lower_levels(given):
    opening_of = lambda problem: specialize(solve(batch=3), problem, ring(4)).opening
    assert isinstance(solve(), Solver)
    assert opening_of(given).rounds == ROUNDS
    assert given.starts_at_random and opening_of(quad()) is None
    fixed = with_start(given, lambda key: (jnp.ones(3), given.start(0)[1]))
    assert not fixed.starts_at_random and opening_of(fixed) is None
    assert "first-order" in diamond.solve(given, ring(4), rounds=1).description


@pytest.mark.wide
def test_it_lowers_the_upper_loss_and_quasi_newton_steps_end_at_the_minimizer(given):
    run = diamond.simulate(given, ring(4), method(), 200, every=SHORT + 1)
    loss = run.history["upper_loss"]
    assert loss[1] < loss[0] and run.history["accepted"][1] == 0
    assert run.history["gradients"][1] > 3 * 3 * (SHORT - 1)  # three of each mini-batch
    assert run.history["stationarity"][-1] < 1e-6 * run.history["stationarity"][0]


@pytest.mark.wide
def test_all_agents_have_the_same_x_in_every_round(given):
    for rounds in (1, 7, SHORT, SHORT + 4):
        x = np.asarray(diamond.simulate(given, ring(4), method(), rounds, every=rounds).last_x)
        np.testing.assert_array_equal(x, np.broadcast_to(x[0], x.shape))


@pytest.mark.wide
@pytest.mark.parametrize(
    ("x_unit", "y_unit", "value"), [(1e6, 1.0, 1.0), (1e-6, 1.0, 1.0), (1.0, 1e6, 1.0), (1e-6,) * 3]
)
def test_units_do_not_matter(given, x_unit, y_unit, value):
    problems = in_units(given), in_units(given, x_unit, y_unit, value)
    usual, other = (
        diamond.simulate(p, ring(4), method(), SHORT + 1, every=SHORT + 1) for p in problems
    )
    np.testing.assert_allclose(np.asarray(other.last_x) / x_unit, usual.last_x, rtol=1e-6)
    np.testing.assert_array_equal(other.history["gradients"], usual.history["gradients"])


@pytest.mark.wide
@pytest.mark.parametrize("step", [1e2, 1e30])
def test_if_it_ends_above_the_start_quasi_newton_steps_begin_at_the_start(given, step):
    """Also where x is no longer a number."""
    run = diamond.simulate(given, ring(4), method(step), SHORT + 2, every=1, measure="loss")
    loss = run.history["upper_loss"]
    assert not loss[SHORT] <= loss[0] and loss[SHORT + 2] == pytest.approx(loss[0])
    np.testing.assert_array_equal(run.last_x[0], given.start(0)[0])
    longer = diamond.simulate(given, ring(4), method(step), 200, every=SHORT + 2)
    assert longer.history["stationarity"][-1] < 1e-6 * longer.history["stationarity"][0]


def test_bits_depend_neither_on_chunks_nor_on_resuming(given):
    whole = diamond.simulate(given, ring(4), method(), SHORT + 5, every=SHORT + 5)
    half = diamond.simulate(given, ring(4), method(), SHORT - 4, every=4)
    resumed = diamond.simulate(given, ring(4), method(), SHORT + 5, every=3, resume=half.snapshot)
    np.testing.assert_array_equal(resumed.last_x, whole.last_x)
    assert resumed.history["gradients"][-1] == whole.history["gradients"][-1]
