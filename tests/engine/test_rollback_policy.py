"""Going back: to which state, with which steps, and that both travel with a checkpoint."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import quad, ring

import diamond
from diamond.auto import loss_monitor
from diamond.auto.rollback_limits import MOST_SHRINKS, STEP_DECREASE, next_step_scale
from diamond.engine import rollback_policy
from diamond.engine.rollback_policy import RollbackPolicy
from diamond.engine.round_program import Progress
from diamond.engine.step_policy import StepPolicy
from diamond.schedules.deferred import ResolutionContext

pytestmark = pytest.mark.quick


class Point(NamedTuple):
    x: jnp.ndarray
    y: jnp.ndarray


def progress_at(t, size):
    return Progress(jnp.int32(t), Point(jnp.array([0.0, size]), jnp.zeros(2)), jnp.full(3, t))


def test_the_last_state_that_is_not_large_then_earlier_ones_then_the_start():
    policy = RollbackPolicy(progress_at(0, 1.0), [])
    for t in (100, 200, 300):
        assert policy.is_due(t) and not policy.is_due(t + 1)
        policy.save_state(progress_at(t, 1.0))
    assert [int(policy.pop_target().t) for _ in range(4)] == [
        300,
        200,
        0,
        0,
    ]  # two beside the start
    policy.save_state(progress_at(100, 5.0))
    policy.save_state(progress_at(200, 1e4))  # finite, and on its way out
    assert not policy.is_lost(progress_at(200, 1e4)) and policy.is_lost(progress_at(300, 1e7))
    assert policy.is_lost(progress_at(300, np.nan))
    assert int(policy.pop_target().t) == 100


def test_the_state_of_the_lowest_loss_and_those_before_it_stay():
    policy = RollbackPolicy(progress_at(0, 1.0), [])
    policy.save_state(progress_at(100, 1.0))
    policy.save_lowest(progress_at(150, 1.0))
    policy.save_state(progress_at(200, 1.0))
    assert int(policy.pop_lowest_target().t) == 150
    assert [int(state.t) for state in policy.recent] == [100]


def test_states_to_go_back_to_travel_by_name():
    policy = RollbackPolicy(progress_at(0, 1.0), [progress_at(100, 2.0), progress_at(200, 3.0)])
    arrays = {name: np.asarray(leaf) for name, leaf in policy.arrays(lambda state: state).items()}
    states = rollback_policy.saved_states(progress_at(0, 1.0), arrays | {".t": 250})
    assert [int(state.t) for state in states] == [100, 200]
    np.testing.assert_array_equal(states[1].state.x, [0, 3])
    assert rollback_policy.saved_states(progress_at(0, 1.0), {".t": 250}) == []


def test_steps_shrink_so_often_and_no_more():
    factor, seen = 1.0, []
    while (factor := next_step_scale(factor)) is not None:
        seen.append(factor)
    np.testing.assert_allclose(seen, STEP_DECREASE ** np.arange(1, MOST_SHRINKS + 1))


def test_numbers_shrink_with_the_run_and_count_what_was_lost():
    problem = quad(agents=3)
    algorithm = diamond.dsgd(
        alpha=0.4, beta=0.2, batch=2, hypergradient=diamond.hypergradient.exact()
    )
    steps = StepPolicy(algorithm, ResolutionContext(problem, ring(3), algorithm.batch, 0))
    alpha = lambda: float(steps.algorithm.variables["x"].step(0))
    assert alpha() == 0.4 and steps.monitor.scale == 1 and not steps.is_due(25)
    x, y = problem.start(0)
    for rounds_lost, rounds in ((30, 30), (12, 42)):
        scale = steps.monitor.scale * STEP_DECREASE
        loss_monitor.record_shrink(steps.memory, scale, rounds_lost)
        steps.reestimate(jnp.stack([x] * 3), jnp.stack([y] * 3), 0, forget=True)
        assert steps.resolved.values["lost"] == steps.memory["lost"].value == rounds
    assert alpha() == 0.4 * STEP_DECREASE**2 == 0.4 * steps.monitor.scale


def test_y_of_small_data_is_large_and_not_lost():
    """From 0 to 1e7 in a hundred rounds, and there it stays; not so where it goes on to grow."""
    policy = RollbackPolicy(progress_at(0, 0.0), [])
    assert not policy.is_lost(progress_at(100, 1e7))
    policy.save_state(progress_at(100, 1e7))
    assert not policy.is_lost(progress_at(200, 2e7)) and policy.is_lost(progress_at(200, 1e8))
    assert policy.is_lost(progress_at(200, np.nan))
