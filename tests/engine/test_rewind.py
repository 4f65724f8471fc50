"""Going back: to which state, with which steps, and that both travel with a checkpoint."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import quad, ring

import diamond
from diamond.auto.watch import FACTOR, SHRINKS, smaller
from diamond.engine import rollback as _rewind
from diamond.engine.rollback import Rewind
from diamond.engine.round import Progress
from diamond.engine.step_policy import Numbers
from diamond.numbers.open_numbers import Setting

pytestmark = pytest.mark.quick


class Point(NamedTuple):
    x: jnp.ndarray
    y: jnp.ndarray


def at(t, size):
    return Progress(jnp.int32(t), Point(jnp.array([0.0, size]), jnp.zeros(2)), jnp.full(3, t))


def test_the_last_state_that_is_not_large_then_earlier_ones_then_the_start():
    rewind = Rewind(at(0, 1.0), [])
    for t in (100, 200, 300):
        assert rewind.marks(t) and not rewind.marks(t + 1)
        rewind.keep(at(t, 1.0))
    assert [int(rewind.back().t) for _ in range(4)] == [300, 200, 0, 0]  # two beside the start
    rewind.keep(at(100, 5.0))
    rewind.keep(at(200, 1e4))  # finite, and on its way out
    assert not rewind.lost(at(200, 1e4)) and rewind.lost(at(300, 1e7))
    assert rewind.lost(at(300, np.nan))
    assert int(rewind.back().t) == 100


def test_states_to_go_back_to_travel_by_name():
    rewind = Rewind(at(0, 1.0), [at(100, 2.0), at(200, 3.0)])
    arrays = {name: np.asarray(leaf) for name, leaf in rewind.arrays(lambda kept: kept).items()}
    found = _rewind.stored(at(0, 1.0), arrays | {".t": 250})
    assert [int(kept.t) for kept in found] == [100, 200]
    np.testing.assert_array_equal(found[1].state.x, [0, 3])
    assert _rewind.stored(at(0, 1.0), {".t": 250}) == []


def test_steps_shrink_so_often_and_no_more():
    factor, seen = 1.0, []
    while (factor := smaller(factor)) is not None:
        seen.append(factor)
    np.testing.assert_allclose(seen, FACTOR ** np.arange(1, SHRINKS + 1))


def test_numbers_shrink_with_the_run_and_count_what_was_lost():
    problem = quad(agents=3)
    given = diamond.dsgd(alpha=0.4, beta=0.2, batch=2, hypergradient=diamond.hypergradient.exact())
    numbers = Numbers(given, Setting(problem, ring(3), given.batch, 0))
    alpha = lambda: float(numbers.algorithm.variables["x"].step(0))
    assert alpha() == 0.4 and numbers.factor == 1 and not numbers.due(25)
    x, y = problem.start(0)
    for lost, rounds in ((30, 30), (12, 42)):
        numbers.shrink(numbers.factor * FACTOR, lost)
        numbers.renew(jnp.stack([x] * 3), jnp.stack([y] * 3), forget=True)
        assert numbers.resolved.numbers["lost"] == numbers.memory["lost"].value == rounds
    assert alpha() == 0.4 * FACTOR**2 == 0.4 * numbers.factor


def test_y_of_small_data_is_large_and_not_lost():
    """From 0 to 1e7 in a hundred rounds, where the objective is lower, and there it stays."""
    rewind = Rewind(at(0, 0.0), [])
    assert not rewind.lost(at(100, 1e7), fallen=True) and rewind.lost(at(100, 1e7))
    rewind.keep(at(100, 1e7))
    assert not rewind.lost(at(200, 2e7), fallen=True) and rewind.lost(at(200, 1e8), fallen=True)
    assert rewind.lost(at(200, np.nan), fallen=True)
