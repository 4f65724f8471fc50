"""Proximal operators: each point is the minimizer of its own problem, and sets are projected on."""

import numpy as np
import pytest

from diamond import prox

RANDOM = np.random.default_rng(3)
REGULARIZERS = [prox.l1(0.7), prox.l2(0.7)]
SETS = [prox.box(-0.5, 1.0), prox.ball(0.8), prox.simplex(1.5)]


@pytest.mark.quick
@pytest.mark.parametrize("operator", [*REGULARIZERS, *SETS], ids=lambda p: type(p).__name__)
def test_no_point_nearby_is_better(operator):
    """prox(v, a) minimizes h(p) + ||p - v||^2 / (2 a), over the set where there is one."""
    for a in (0.3, 2.0):
        v = RANDOM.normal(size=5)
        point = np.asarray(operator(v, a))
        objective = lambda p, v=v, a=a: float(operator.value(p)) + np.sum((p - v) ** 2) / (2 * a)
        for _ in range(50):
            other = point + 0.1 * RANDOM.normal(size=5)
            if operator in SETS:
                other = np.asarray(operator(other, a))  # another point of the set
            assert objective(point) <= objective(other) + 1e-12


@pytest.mark.quick
def test_points_of_a_set_stay_and_others_reach_it():
    for operator in SETS:
        point = np.asarray(operator(5 * RANDOM.normal(size=4), 1.0))
        np.testing.assert_allclose(operator(point, 1.0), point, atol=1e-12)
    np.testing.assert_allclose(np.sum(point), 1.5)
    assert (point >= 0).all()


@pytest.mark.quick
def test_large_weights_set_x_to_zero():
    v = np.array([0.3, -0.2])
    assert not np.any(prox.l1(1.0)(v, 1.0)) and not np.any(prox.l2(1.0)(v, 1.0))


@pytest.mark.quick
@pytest.mark.parametrize("make", [prox.ball, prox.simplex, prox.l1, prox.l2])
def test_sizes_are_positive(make):
    for value in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            make(value)
    with pytest.raises(ValueError, match="is empty; give low <= high"):
        prox.box(1.0, 0.0)
