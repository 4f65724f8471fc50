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


@pytest.mark.parametrize("steps", [(0.05, 0.2), (None, None)], ids=["given", "chosen"])
def test_it_is_what_simulate_measures(steps):
    made = quad()
    alpha, beta = steps
    given = made, ring(4), [(diamond.gt_sgd(alpha, beta, batch=4), 1)], 20, MARKS
    with without_optimizations():
        (light,), (whole,) = simulate_many(*given, measure="loss"), simulate_many(*given)
    assert light.diverged is whole.diverged is None
    assert light.history["round"].tolist() == [0, *MARKS, 20] == whole.history["round"].tolist()
    for name in ("samples", "gradients", "hvps", "jvps", "bytes"):
        np.testing.assert_array_equal(light.history[name], whole.history[name])
    np.testing.assert_allclose(light.history["upper_loss"], whole.history["upper_loss"], rtol=1e-4)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # that it is about to
def test_one_that_diverges_ends_there():
    given = quad(), ring(4), [(diamond.gt_sgd(1e9, 0.2, batch=4), 1)], 20, MARKS
    with without_optimizations():
        (light,), (whole,) = simulate_many(*given, measure="loss"), simulate_many(*given)
    assert light.diverged is not None and whole.diverged is not None
    assert abs(light.diverged - whole.diverged) <= 12


def test_evaluations_are_dense_early_or_all_late():
    assert evaluation_rounds(3, 8) == {0, 3, 6, 8}
    assert evaluation_rounds([2, 5, 9], 8) == {0, 2, 5, 8}
    assert late_rounds(100) == [84, 88, 92, 96, 100] and late_rounds(3) == [3]
    found = geometric_rounds(1000, 72)
    assert found[0] == 1 and found[-1] == 1000 and len(found) >= 50
    assert max(b / a for a, b in pairwise(found) if a > 10) < 1.2
