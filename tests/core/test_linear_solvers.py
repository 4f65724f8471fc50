"""Conjugate gradients in float32, whatever the scale of the data."""

import jax.numpy as jnp
import numpy as np
import pytest

from diamond.core.linear_solvers import conjugate_gradient, curvature_aware_solve, row_scales
from diamond.core.pytrees import power_of_two

pytestmark = pytest.mark.quick


@pytest.mark.wide
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-3, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("bend", [1e-12, 1.0, 1e12])
def test_conjugate_gradients_do_not_depend_on_scale(scale, bend):
    random = np.random.default_rng(0)
    root = random.normal(size=(6, 6))
    matrix, b = root @ root.T + np.eye(6), random.normal(size=6)
    exact = np.linalg.solve(bend * matrix, scale * b)
    narrow = jnp.asarray(bend * matrix, jnp.float32)
    z, steps = conjugate_gradient(
        lambda w: narrow @ w, jnp.asarray(scale * b, jnp.float32), 30, 1e-5
    )
    assert np.linalg.norm(z - exact) < 1e-3 * np.linalg.norm(exact)
    assert 1 <= steps < 30  # it knows that it is done


def test_nothing_to_solve_is_solved_by_nothing():
    z, steps = conjugate_gradient(lambda w: w, jnp.zeros(3), 5)
    assert steps == 0 and not z.any()


def test_the_power_of_two_is_of_the_largest_number():
    given = {"a": jnp.array([3.0, -5.0]), "b": jnp.array([0.1])}
    assert power_of_two(given) == 1 / 8 and power_of_two(jnp.zeros(2)) == 1


def test_curvatures_tell_whether_the_matrix_is_definite():
    b = jnp.arange(1.0, 5.0)

    def curvatures(*eigenvalues):
        return curvature_aware_solve(lambda w: jnp.array(eigenvalues) * w, b, 20, 1e-8)[2]

    assert curvatures(1, 2, 3, 4) == pytest.approx(1)
    assert curvatures(1, 2, 3, 1e13) == pytest.approx(1)  # coordinates in other units
    assert curvatures(0, 1, 2, 3) < 1e-12 and curvatures(-1, 2, 3, 4) <= 0
    assert curvature_aware_solve(lambda w: w, jnp.zeros(3), 5)[2] == jnp.inf


@pytest.mark.wide
def test_rows_are_scaled_only_where_their_norms_differ_by_orders_of_magnitude():
    spread = lambda diagonal: row_scales(lambda v: diagonal * v, diagonal)
    np.testing.assert_array_equal(spread(jnp.array([1.0, 1e4])), 1)
    scales = spread(jnp.array([4.0**20, 0.0, 1.0, 4.0]))
    np.testing.assert_array_equal(scales, [2.0**-20, 1.0, 1.0, 0.5])
