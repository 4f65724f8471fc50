"""Pairs of steps and images: the inverse that they approximate, and the diagonal."""

import jax.numpy as jnp
import numpy as np
import pytest

from diamond.auto.curvature_pairs import append, apply_inverse, diagonal_of, merge, no_pairs

pytestmark = pytest.mark.quick
SIZE = 5


def spd(seed=0):
    """A dense positive definite matrix."""
    half = np.random.default_rng(seed).normal(size=(SIZE, SIZE))
    return half @ half.T + 0.1 * np.eye(SIZE)


def pairs_of(matrix, steps, capacity=8):
    pairs = no_pairs(capacity, jnp.zeros(SIZE))
    for step in steps:
        pairs = append(pairs, jnp.asarray(step), jnp.asarray(matrix @ step))
    return pairs


def test_without_pairs_the_matrix_is_the_identity_or_the_diagonal():
    v, diagonal = jnp.arange(1.0, 6.0), jnp.arange(2.0, 7.0)
    pairs = no_pairs(4, v)
    np.testing.assert_array_equal(apply_inverse(pairs, v), v)
    np.testing.assert_allclose(apply_inverse(pairs, v, diagonal), v / diagonal)


def test_all_conjugate_directions_give_the_inverse():
    matrix = spd()
    steps = np.linalg.inv(np.linalg.cholesky(matrix))  # rows with s_i' A s_j = 0
    pairs = pairs_of(matrix, 3.0 * steps)
    v = np.arange(1.0, 6.0)
    np.testing.assert_allclose(apply_inverse(pairs, v), np.linalg.solve(matrix, v), rtol=1e-9)


def test_it_is_the_formula_of_bfgs():
    """The dense inverse is updated pair by pair, from the first matrix of the two loops."""
    matrix, steps = spd(1), np.random.default_rng(2).normal(size=(3, SIZE))
    images = steps @ matrix
    scale = steps[-1] @ images[-1] / (images[-1] @ images[-1])
    inverse = scale * np.eye(SIZE)
    for s, image in zip(steps, images):
        rho = 1 / (s @ image)
        left = np.eye(SIZE) - rho * np.outer(s, image)
        inverse = left @ inverse @ left.T + rho * np.outer(s, s)
    v = np.arange(1.0, 6.0)
    np.testing.assert_allclose(apply_inverse(pairs_of(matrix, steps), v), inverse @ v, rtol=1e-9)


def test_units_of_the_matrix_change_nothing():
    matrix, steps = spd(), np.random.default_rng(2).normal(size=(4, SIZE))
    v = np.arange(1.0, 6.0)
    usual = apply_inverse(pairs_of(matrix, steps), v)
    other = apply_inverse(pairs_of(1e6 * matrix, 1e-3 * steps), v)
    np.testing.assert_allclose(1e6 * other, usual, rtol=1e-9)


def test_the_diagonal_of_a_diagonal_matrix_is_exact():
    diagonal = np.geomspace(1, 1e-4, SIZE)
    pairs = pairs_of(np.diag(diagonal), np.random.default_rng(0).normal(size=(3, SIZE)))
    np.testing.assert_allclose(diagonal_of(pairs), diagonal, rtol=1e-9)
    np.testing.assert_array_equal(diagonal_of(no_pairs(2, jnp.zeros(SIZE))), 1)


@pytest.mark.parametrize("count, numbers", [(1, [2, 3, 9]), (2, [0, 8, 9]), (3, [7, 8, 9])])
def test_new_pairs_follow_old_ones_or_replace_them(count, numbers):
    """From half of the capacity on, the newer ones alone; free rows are zeros."""
    unit = lambda i: np.eye(10)[i]

    def memory(numbers):
        pairs = no_pairs(3, jnp.zeros(10))
        for i in numbers:
            pairs = append(pairs, jnp.asarray(unit(i)), jnp.asarray(unit(i)))
        return pairs

    newer = list(range(10 - count, 10))
    merged = merge(memory([1, 2, 3]), memory(newer), jnp.int32(count))
    merged_numbers = [int(row.argmax()) if row.any() else 0 for row in np.asarray(merged.steps)]
    assert merged_numbers == numbers
