"""A shared backbone of any kind with heads of one's own; a few dense layers are a case of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks

from diamond.config import problem_section as gallery
from diamond.gallery import meta_learning, representation
from diamond.metrics import lower_solution


def sites(random, target):
    def part():
        a = random.normal(size=(20, 3))
        return {"a": a, "b": target(a)}

    return [[part() for _ in range(2)] for _ in range(3)]


def test_the_lower_level_of_numbers_is_a_ridge_regression_on_the_features():
    random = np.random.default_rng(0)
    rows = sites(random, lambda a: a[:, 0] + 0.5)
    backbone = lambda x, a: jnp.tanh(a @ x["w"])
    init = lambda key: {"w": jax.random.normal(key, (3, 4))}
    problem = representation(backbone, init, *rows, classes=None, regularizer=0.3)
    x, y = problem.start(0)
    assert y["w"].shape == (4,) and y["b"].shape == () and "test_loss" in problem.metrics
    own = problem.objectives().for_agent(1)
    found = lower_solution.solve_lower_level(own, x, y).y
    held = problem.rows["train"][1]
    phi = np.column_stack([np.tanh(held["a"] @ x["w"]), np.ones(20)])
    wanted = np.linalg.solve(phi.T @ phi / 20 + 0.15 * np.eye(5), phi.T @ held["b"] / 20)
    np.testing.assert_allclose([*found["w"], found["b"]], wanted, rtol=1e-8)
    assert problem.constant == pytest.approx(
        np.mean([np.mean((v["b"] - t["b"].mean() / 1.15) ** 2) for t, v in zip(*rows[:2])])
    )


@pytest.mark.wide
def test_dense_layers_are_a_case(monkeypatch):
    skip_loss_checks(monkeypatch)
    random = np.random.default_rng(1)
    rows = sites(random, lambda a: (a[:, 0] > a[:, 1]).astype(int))
    layers = meta_learning(*rows, classes=2, widths=(4, 3))
    own = representation(
        lambda x, a: jnp.tanh(jnp.tanh(a @ x[0]["w"] + x[0]["b"]) @ x[1]["w"] + x[1]["b"]),
        lambda key: layers.init(key)[0],
        *rows,
        classes=2,
    )
    x, y = layers.start(3)
    y = jax.tree.map(lambda a: a + 0.1, y)
    for loss in ("upper", "lower"):
        one, two = (getattr(p, loss)(x, y, p.rows["valid"][0]) for p in (layers, own))
        assert one == two
    assert layers.constant == own.constant


def test_a_backbone_that_gives_no_table_is_refused():
    rows = sites(np.random.default_rng(0), lambda a: np.zeros(20, int))
    for wrong in (
        lambda x, a: a[:, :, None] * x,
        lambda x, a: jnp.mean(a) * x,
        lambda x, a: (a, a),
    ):
        with pytest.raises(ValueError, match=r"it must be one array \(rows, width\)"):
            representation(wrong, lambda key: jnp.zeros(()), *rows, classes=2)
    assert "representation" not in gallery.problem_names()
