"""Runs of which only the loss is wanted: the rounds, costs and losses of `simulate`."""

from itertools import pairwise

import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import quad, ring

import diamond
from diamond.engine.many_runs import simulate_many
from diamond.metrics.evaluations import evaluation_rounds, geometric_rounds, late_rounds

MARKS = [1, 2, 5, 12]


@pytest.mark.wide
@pytest.mark.parametrize("steps", [(0.05, 0.2), (None, None)], ids=["given", "chosen"])
def test_it_is_what_simulate_measures(steps):
    problem = quad()
    alpha, beta = steps
    inputs = problem, ring(4), [(diamond.gt_sgd(alpha, beta, batch=4), 1)], 20, MARKS
    with without_optimizations():
        (light,), (exact,) = simulate_many(*inputs, measure="loss"), simulate_many(*inputs)
    assert light.diverged is exact.diverged is None
    assert light.history["round"].tolist() == [0, *MARKS, 20] == exact.history["round"].tolist()
    for name in ("samples", "gradients", "hvps", "jvps", "bytes"):
        np.testing.assert_array_equal(light.history[name], exact.history[name])
    np.testing.assert_allclose(light.history["upper_loss"], exact.history["upper_loss"], rtol=1e-4)


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # that it is about to
def test_one_that_diverges_ends_there():
    inputs = quad(), ring(4), [(diamond.gt_sgd(1e9, 0.2, batch=4), 1)], 20, MARKS
    with without_optimizations():
        (light,), (exact,) = simulate_many(*inputs, measure="loss"), simulate_many(*inputs)
    assert light.diverged is not None and exact.diverged is not None
    assert abs(light.diverged - exact.diverged) <= 12


def test_evaluations_are_dense_early_or_all_late():
    assert evaluation_rounds(3, 8) == {0, 3, 6, 8}
    assert evaluation_rounds([2, 5, 9], 8) == {0, 2, 5, 8}
    assert late_rounds(100) == [84, 88, 92, 96, 100] and late_rounds(3) == [3]
    rounds = geometric_rounds(1000, 72)
    assert rounds[0] == 1 and rounds[-1] == 1000 and len(rounds) >= 50
    assert max(b / a for a, b in pairwise(rounds) if a > 10) < 1.2
