"""The paper's problems, against plain numpy of the formulas."""

import jax
import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from scipy import special

from diamond.core.sampling import key
from diamond.gallery import hyperparameter, meta_learning

pytestmark = pytest.mark.quick

RANDOM = np.random.default_rng(5)
ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda a: np.maximum(a, 0),
    "gelu": lambda a: a / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))),
    "softplus": lambda a: np.log1p(np.exp(a)),
}


@pytest.fixture(autouse=True)
def formulas_alone(monkeypatch):
    skip_loss_checks(monkeypatch)


def rows(count, features, classes):
    return {"a": RANDOM.normal(size=(count, features)), "b": RANDOM.integers(0, classes, count)}


def agents(features, classes):
    return [[rows(n, features, classes) for n in (7, 9)] for _ in range(3)]


def shapes(problem):
    return jax.eval_shape(problem.init, key(0))


def random_point(problem):
    return jax.tree.map(lambda a: RANDOM.normal(size=a.shape), shapes(problem))


def values(problem, x, y, rows):
    """f, g and the metrics there, in one program."""
    functions = problem.upper, problem.lower, *problem.metrics.values()
    return jax.jit(lambda *given: [f(*given) for f in functions])(x, y, rows)


def scores(x, y, a, activation):
    for layer in x:
        a = ACTIVATIONS[activation](a @ layer["w"] + layer["b"])
    return a @ y["w"] + y["b"]


def cross_entropy(scores, labels):
    each = special.logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels]
    return each.mean()


def differences(loss, y, step=1e-6):
    """The gradient of `loss`, two values of it a coordinate."""
    leaves, structure = jax.tree.flatten(y)

    def slope(k, where):
        def at(sign):
            moved = [leaf.copy() for leaf in leaves]
            moved[k][where] += sign * step
            return loss(jax.tree.unflatten(structure, moved))

        return (at(1) - at(-1)) / (2 * step)

    found = [
        np.array([slope(k, i) for i in np.ndindex(leaf.shape)]).reshape(leaf.shape)
        for k, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, found)


def close(a, b, rtol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol), a, b)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_meta_learning_is_its_formula(activation):
    problem = meta_learning(*agents(4, 3), 3, (5, 2), activation, regularizer=0.7)
    x, y = random_point(problem)
    r = rows(11, 4, 3)
    found = scores(x, y, r["a"], activation)
    loss = cross_entropy(found, r["b"])
    ridge = 0.7 / 2 * ((y["w"] ** 2).sum() + (y["b"] ** 2).sum())
    right = np.mean(found.argmax(1) == r["b"])
    upper, lower, accuracy = values(problem, x, y, r)
    np.testing.assert_allclose([upper, lower], [loss, loss + ridge], rtol=1e-12)
    np.testing.assert_allclose(accuracy, right, rtol=1e-6)
    assert list(problem.metrics) == ["accuracy"] and 0 < right < 1


def test_the_lower_gradient_of_meta_learning_is_that_of_its_values():
    problem = meta_learning(*agents(4, 3), 3, (5,), regularizer=0.3)
    x, y = random_point(problem)
    r = rows(6, 4, 3)

    def loss(y):
        ridge = (y["w"] ** 2).sum() + (y["b"] ** 2).sum()
        return cross_entropy(scores(x, y, r["a"], "tanh"), r["b"]) + 0.15 * ridge

    close(jax.jit(jax.grad(problem.lower, 1))(x, y, r), differences(loss, y), 1e-7)


@pytest.mark.parametrize("widths", [(6,), (5, 3, 4)])
def test_the_layers_have_the_widths_asked_for(widths):
    x, y = shapes(meta_learning(*agents(4, 3), classes=3, widths=widths))
    sizes = [4, *widths]
    assert [layer["w"].shape for layer in x] == list(zip(sizes, widths))
    assert [layer["b"].shape for layer in x] == [(b,) for b in widths]
    assert y["w"].shape == (widths[-1], 3) and y["b"].shape == (3,)


def test_the_layers_start_with_variance_one_over_their_inputs():
    x, y = meta_learning(*agents(50, 3), classes=3, widths=(400,)).start(0)
    np.testing.assert_allclose(x[0]["w"].var(), 1 / 50, rtol=0.05)
    assert not np.any(x[0]["b"]) and not np.any(y["w"]) and not np.any(y["b"])


def test_an_unknown_activation_is_refused():
    message = "no activation 'sine'; there are tanh, relu, gelu, softplus"
    with pytest.raises(ValueError, match=message):
        meta_learning(*agents(4, 3), activation="sine")


def test_hyperparameter_is_its_formula():
    p, q = 4, 3
    problem = hyperparameter(*agents(p, q), classes=q)
    x, y = random_point(problem)
    r = rows(11, p, q)
    loss = cross_entropy(r["a"] @ y, r["b"])
    ridge = sum(np.exp(x[i]) * y[i, k] ** 2 for i in range(p) for k in range(q)) / (q * p)
    right = np.mean((r["a"] @ y).argmax(1) == r["b"])
    upper, lower, accuracy, test_loss = values(problem, x, y, r)
    np.testing.assert_allclose([upper, lower], [loss, loss + ridge], rtol=1e-12)
    np.testing.assert_allclose(test_loss, loss, rtol=1e-12)
    np.testing.assert_allclose(accuracy, right, rtol=1e-6)
    assert list(problem.metrics) == ["accuracy", "test_loss"] and 0 < right < 1


def test_the_gradients_of_hyperparameter_are_those_of_its_values():
    p, q = 4, 3
    problem = hyperparameter(*agents(p, q), classes=q)
    x, y = random_point(problem)
    r = rows(6, p, q)

    def loss(x, y):
        return cross_entropy(r["a"] @ y, r["b"]) + (np.exp(x)[:, None] * y**2).sum() / (q * p)

    of_x, of_y = jax.jit(jax.grad(problem.lower, (0, 1)))(x, y, r)
    close(of_x, differences(lambda x: loss(x, y), x), 1e-7)
    close(of_y, differences(lambda y: loss(x, y), y), 1e-7)


def test_the_log_penalties_start_where_asked():
    x, y = hyperparameter(*agents(4, 2), start=-3).start(0)
    np.testing.assert_array_equal(x, np.full(4, -3.0))
    assert y.shape == (4, 2) and not np.any(y)
