"""Elastic nets as lower levels, by scikit-learn, proximal gradients, difference quotients."""

import numpy as np
import pytest
from exact_solution import solve_exactly
from fast_compilation import skip_loss_checks

from diamond.gallery import hyperparameter, regression

RANDOM = np.random.default_rng(8)
P = 4
TRUE = np.array([2.0, -1.0, 0.0, 0.0])  # two features that mean nothing


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    skip_loss_checks(monkeypatch)


def rows(count):
    a = RANDOM.normal(size=(count, P))
    return {"a": a, "b": a @ TRUE + 1 + 0.3 * RANDOM.normal(size=count)}


TRAIN, VALID = [rows(20), rows(20)], [rows(10), rows(10)]


@pytest.mark.wide
def test_models_are_those_of_scikit_learn():
    """mean (a'w + b - t)^2 + 1/p (l2 |w|^2 + l1 |w|_1) is twice ElasticNet's objective."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    l2, l1 = 0.4, 2.0
    x = np.log(np.repeat([l2, l1], P))
    problem = regression(TRAIN, VALID, penalty="elastic_net", smoothing=1e-4)
    y, _ = solve_exactly(problem, x)
    strength = l1 / (2 * P) + l2 / P
    for agent, own in enumerate(TRAIN):
        model = linear_model.ElasticNet(strength, l1_ratio=l1 / (2 * P) / strength, tol=1e-12)
        model.fit(own["a"], own["b"])
        np.testing.assert_allclose(y["w"][agent], model.coef_, atol=2e-4)
        np.testing.assert_allclose(y["b"][agent], model.intercept_, atol=2e-4)
        zero = model.coef_ == 0
        assert zero.any() and np.abs(y["w"][agent][zero]).max() < 2e-4


def test_the_hypergradient_is_the_slope_of_the_validation_loss():
    """At the default smoothing, of both kinds of penalties; y solved again on either side."""
    problem = regression(TRAIN, VALID, penalty="elastic_net", names=list("abcd"))
    assert problem.names == ("a L2", "b L2", "c L2", "d L2", "a L1", "b L1", "c L1", "d L1")
    x = np.log(np.repeat([0.4, 2.0], P)) + 0.1 * RANDOM.normal(size=2 * P)

    def loss(x):
        y, _ = solve_exactly(problem, x)
        off = [v["a"] @ w + b - v["b"] for v, w, b in zip(VALID, y["w"], y["b"])]
        return np.mean([np.mean(each**2) for each in off])

    gradient = solve_exactly(problem, x)[1]
    slopes = [(loss(x + turn) - loss(x - turn)) / 2e-5 for turn in 1e-5 * np.eye(2 * P)]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-8)
    assert np.abs(gradient[P:]).max() > 1e-4  # the penalties of absolute values matter


@pytest.mark.wide
def test_a_classifier_is_that_of_proximal_gradients():
    """Steps on the cross-entropy and the squares, then w shrunk towards 0 by step x l1 / (q p)."""
    classes = 3
    make = lambda count: {
        "a": (a := RANDOM.normal(size=(count, P))),
        "b": np.argmax(a @ np.eye(P, classes) + 0.5 * RANDOM.normal(size=(count, classes)), 1),
    }
    train, valid = [make(40)], [make(20)]
    l2, l1 = np.full(P, 0.1), np.array([0.5, 0.5, 0.5, 3.0])
    options = {"classes": classes, "penalty": "elastic_net", "smoothing": 1e-4}
    y, _ = solve_exactly(hyperparameter(train, valid, **options), np.log(np.concatenate([l2, l1])))
    a, b, scale = train[0]["a"], np.eye(classes)[train[0]["b"]], classes * P
    w, step = np.zeros((P, classes)), 0.5
    for _ in range(4000):
        scores = np.exp(a @ w - (a @ w).max(1, keepdims=True))
        slope = a.T @ (scores / scores.sum(1, keepdims=True) - b) / len(a)
        moved = w - step * (slope + 2 * l2[:, None] * w / scale)
        w = np.sign(moved) * np.maximum(np.abs(moved) - step * l1[:, None] / scale, 0)
    np.testing.assert_allclose(y[0], w, atol=3e-4)
    assert (w[3] == 0).all() and np.abs(w[0]).max() > 0.3


@pytest.mark.parametrize("options, message", [
    ({"penalty": "l1"}, "penalty = 'l1'; there are 'l2' and 'elastic_net'"),
    ({"penalty": "elastic_net", "smoothing": 0.0}, "smoothing = 0.0; give a number above 0"),
])  # fmt: skip
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        regression(TRAIN, VALID, **options)
