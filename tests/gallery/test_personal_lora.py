"""Adapters against the network whose weights they change, the truth, and a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from helpers import ring

import diamond
from diamond.gallery import personal_lora

SMALL = {"agents": 2, "widths": (8,), "features": 4, "outputs": 2, "shared_rank": 1, "rows": 30}


@pytest.fixture
def problem(monkeypatch):
    skip_loss_checks(monkeypatch)
    return personal_lora(**SMALL)


@pytest.mark.quick
def test_adapters_change_the_weights(problem):
    shared, personal = problem.shared_change, problem.personal_changes[1]
    weights = [
        w + s["a"] @ s["b"] + p["a"] @ p["b"] for w, s, p in zip(problem.base, shared, personal)
    ]
    a = np.random.default_rng(0).normal(size=(3, 4))
    rows = {"a": a}
    expected = np.tanh(a @ weights[0]) @ weights[1]
    np.testing.assert_allclose(
        problem.predict(shared, personal, rows), expected, rtol=1e-4, atol=1e-5
    )
    x, y = problem.start(0)
    frozen = np.tanh(a @ problem.base[0]) @ problem.base[1]
    np.testing.assert_allclose(problem.predict(x, y, rows), frozen, rtol=1e-4, atol=1e-5)


@pytest.mark.quick
def test_the_true_adapters_leave_the_noise(problem):
    losses = [
        problem.upper(problem.shared_change, personal, rows)
        for personal, rows in zip(problem.personal_changes, problem.rows["test"])
    ]
    np.testing.assert_allclose(np.mean(losses), 0.1**2, rtol=0.2)
    gain = problem.metrics["gain"]
    parts = zip(problem.personal_changes, problem.rows["test"])
    gains = [gain(problem.shared_change, personal, rows) for personal, rows in parts]
    np.testing.assert_allclose(np.mean(gains), 1, atol=0.03)


@pytest.mark.wide
def test_shared_adapters_lower_the_loss_of_personal_ones(problem):
    steps = {"beta": 0.1, "delta": 0.1, "batch": 15}
    ends = {}
    for alpha in (0.0, 0.2):
        algorithm = diamond.f2sa_fused(alpha=jnp.float32(alpha), **steps)
        run = diamond.simulate(problem, ring(2), algorithm, 400, every=400, progress=False)
        ends[alpha] = run.history["upper_loss"][-1], run.history["gain"][-1]
    assert ends[0.2][0] < 0.8 * ends[0.0][0]
    assert ends[0.2][1] > ends[0.0][1] > 0.1


@pytest.mark.quick
def test_sizes_are_checked():
    with pytest.raises(ValueError, match="rank = 0"):
        personal_lora(rank=0)
    assert jax.tree.leaves(personal_lora(**SMALL).start(0)[1])[0].shape == (4, 1)
