"""Support vector machines, against numpy of the formula, and machines that scikit-learn finds."""

import jax
import numpy as np
import pytest
from exact_solution import solve_exactly
from fast_compilation import skip_loss_checks

from diamond.gallery import support_vectors

RANDOM = np.random.default_rng(8)
P, Q = 4, 3


def rows(count, classes=Q):
    a = RANDOM.normal(size=(count, P))
    b = np.argmax(a[:, :classes] + RANDOM.normal(size=(count, classes)), 1)
    return {"a": a, "b": b}


@pytest.mark.quick
def test_the_losses_are_their_formula(monkeypatch):
    skip_loss_checks(monkeypatch)
    problem = support_vectors([rows(6)], [rows(6)], classes=Q)
    x, y = RANDOM.normal(size=P), {"w": RANDOM.normal(size=(P, Q)), "b": RANDOM.normal(size=Q)}
    r = rows(11)
    hinges = [
        max(0, 1 - (1 if k == b else -1) * (a @ y["w"][:, k] + y["b"][k])) ** 2
        for a, b in zip(r["a"], r["b"])
        for k in range(Q)
    ]
    ridge = np.mean([np.exp(x[i]) * y["w"][i, k] ** 2 for i in range(P) for k in range(Q)])
    right = np.mean((r["a"] @ y["w"] + y["b"]).argmax(1) == r["b"])
    functions = problem.upper, problem.lower, problem.metrics["accuracy"]
    found = jax.jit(lambda *given: [f(*given) for f in functions])(x, y, r)
    np.testing.assert_allclose(found[:2], [np.mean(hinges), np.mean(hinges) + ridge], rtol=1e-12)
    np.testing.assert_allclose(found[2], right, rtol=1e-6)


@pytest.mark.wide
def test_the_machine_is_that_of_scikit_learn():
    svm = pytest.importorskip("sklearn.svm")
    r = rows(40, classes=2)
    problem = support_vectors([r], [r], start=-1.0)
    y, _ = solve_exactly(problem, np.full(P, -1.0))
    # 1/n sum hinge^2 + exp(x)/p w'w  =  2 exp(x)/p (w'w / 2 + C sum hinge^2)
    machine = svm.LinearSVC(C=P * np.e / (2 * 40), intercept_scaling=1e3, tol=1e-12, max_iter=10**6)
    machine.fit(r["a"], r["b"])
    for k, sign in enumerate((-1, 1)):
        np.testing.assert_allclose(y["w"][0, :, k], sign * machine.coef_[0], atol=1e-4)
        np.testing.assert_allclose(y["b"][0, k], sign * machine.intercept_[0], atol=1e-4)
