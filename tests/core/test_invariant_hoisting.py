"""What does not depend on the argument is computed once, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond.core.invariant_hoisting import hoist_invariants

pytestmark = pytest.mark.quick

W = {"a": jnp.linspace(-1.0, 1.0, 12).reshape(3, 4), "b": jnp.linspace(0.5, 1.0, 4)}
Y = {"w": jnp.linspace(-0.3, 0.4, 4), "c": jnp.float32(0.2)}
ROWS = jnp.linspace(-2.0, 2.0, 15).reshape(5, 3)


def loss(x, y):
    features = jax.nn.relu(jnp.tanh(ROWS @ x["a"] + x["b"]))
    return jnp.mean(jnp.logaddexp(0.0, features @ y["w"] + y["c"])) + jnp.sum(y["w"] ** 2)


def close(result, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), result, expected)


def products(f, *given):
    """Matrix products inside the loop of a program that calls f five times."""
    loop = lambda y: jax.lax.fori_loop(0, 5, lambda _, y: f(y), y)
    (body,) = (e for e in jax.make_jaxpr(loop)(*given).eqns if e.primitive.name == "scan")
    return sum(e.primitive.name == "dot_general" for e in body.params["jaxpr"].eqns)


@pytest.mark.wide
def test_the_same_values_and_derivatives():
    gradient = lambda y: jax.grad(loss, 1)(W, y)
    once = hoist_invariants(gradient, Y)
    other = jax.tree.map(lambda a: a + 0.7, Y)
    close(once(other), gradient(other))
    direction = jax.tree.map(jnp.ones_like, Y)
    product = lambda f: jax.linearize(f, other)[1](direction)
    close(product(once), product(gradient))


def test_features_are_made_outside_of_the_loop():
    gradient = lambda y: jax.grad(loss, 1)(W, y)
    assert products(gradient, Y) == 3  # the features, the scores, the gradient in w
    assert products(hoist_invariants(gradient, Y), Y) == 2


def test_under_vmap_each_has_its_own():
    points = jax.tree.map(lambda a: jnp.stack([a, 2 * a, -a]), W)

    def newton(x):
        f = hoist_invariants(lambda y: jax.grad(loss, 1)(x, y), Y)
        return jax.lax.fori_loop(0, 3, lambda _, y: jax.tree.map(lambda y, g: y - g, y, f(y)), Y)

    result = jax.jit(jax.vmap(newton))(points)
    for i in range(3):
        x, y = jax.tree.map(lambda a, i=i: a[i], points), Y
        for _ in range(3):
            y = jax.tree.map(lambda y, g: y - g, y, jax.grad(loss, 1)(x, y))
        close(jax.tree.map(lambda a, i=i: a[i], result), y)


def test_a_value_that_does_not_move_at_all():
    constant = hoist_invariants(lambda y: (y["w"], ROWS.sum(), 3.0), Y)
    w, total, three = constant(jax.tree.map(lambda a: a + 1, Y))
    np.testing.assert_allclose(w, Y["w"] + 1)
    assert total == ROWS.sum() and three == 3
