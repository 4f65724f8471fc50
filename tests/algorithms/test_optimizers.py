"""Optimizers of optax for the variables of a method, against loops written by hand."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import final_progress, quad, ring, same_bits

import diamond
from diamond.algorithms.parts.optax_optimizers import parse_optimizer
from diamond.config.components import read_algorithm
from diamond.engine.many_runs import simulate_many

LAM, ROUNDS = 20.0, 12
ONE = diamond.network.complete(1)


def fused(x="gt", order="atc", **steps):
    """The fused penalty with this rule for x."""
    return diamond.compose("penalty", "plain", x=x, lam=LAM, batch=2, order=order, **steps)


@pytest.mark.wide
def test_one_agent_equals_loops_of_plain_optax():
    """Adam for x, AdamW for y, which decays the parameters, and momentum for z."""
    problem = quad(agents=1, noise=0.0)
    transformations = {
        "x": optax.adam(0.05),
        "y": optax.adamw(0.03, weight_decay=0.2),
        "z": optax.sgd(optax.cosine_decay_schedule(0.2, 10), momentum=0.5),
    }
    method = diamond.with_optimizers(fused(), **transformations)
    state = final_progress(problem, ONE, method, ROUNDS).state

    one = jax.tree.map(lambda a: a[0], problem.objectives(2))
    f, g = (lambda x, y: one.f(x, y, None)), (lambda x, y: one.g(x, y, None))
    x, y = jax.tree.map(lambda a: a[0] if a.ndim > 1 else a, problem.start(0))
    point = {"x": x, "y": y, "z": y}
    states = {name: t.init(point[name]) for name, t in transformations.items()}
    for _ in range(ROUNDS):
        f_x, f_y = jax.grad(f, (0, 1))(point["x"], point["z"])
        y_x, y_y = jax.grad(g, (0, 1))(point["x"], point["y"])
        z_x, z_y = jax.grad(g, (0, 1))(point["x"], point["z"])
        gradients = {"x": f_x + LAM * (z_x - y_x), "y": y_y, "z": f_y / LAM + z_y}
        following = {}
        for name, transformation in transformations.items():
            update, states[name] = transformation.update(gradients[name], states[name], point[name])
            following[name] = optax.apply_updates(point[name], update)
        point = following
    for name in point:
        np.testing.assert_allclose(getattr(state, name)[0], point[name], rtol=1e-9, atol=1e-12)
    assert np.abs(point["x"]).min() > 1e-3


@pytest.mark.wide(keep=["gt paper", "push_gt atc"])
@pytest.mark.parametrize(
    "choice",
    ["gt atc", "gt paper", "gossip paper", "ed atc", "extra atc", "push_gt atc"],
)
def test_sgd_is_the_own_step_of_every_rule(choice):
    rule, order = choice.split()
    own = final_progress(quad(), ring(4), fused(rule, order, alpha=0.03, beta=0.2), 6).state
    method = diamond.with_optimizers(
        fused(rule, order), x=optax.sgd(0.03), y=optax.sgd(0.2), z=optax.sgd(0.2)
    )
    state = final_progress(quad(), ring(4), method, 6).state
    for name in "xyz":
        np.testing.assert_allclose(getattr(state, name), getattr(own, name), rtol=1e-10)


@pytest.mark.wide
def test_a_tracked_x_has_the_same_limit_by_adam_and_gossip_has_another():
    problem = quad(noise=0.0)
    decaying = optax.adam(optax.cosine_decay_schedule(0.05, 1500))
    lower_steps = dict(beta=0.3, delta=0.3)
    limits = {
        rule: final_progress(
            problem, ring(4), diamond.with_optimizers(fused(rule, **lower_steps), x=decaying), 1500
        ).state.x
        for rule in ("gt", "gossip")
    }
    plain = final_progress(problem, ring(4), fused(alpha=0.05, **lower_steps), 1500).state.x
    np.testing.assert_allclose(limits["gt"], plain, atol=1e-3)
    assert np.abs(limits["gossip"] - plain).max() > 1e-2


def adam_run(rounds=8, **options):
    method = diamond.with_optimizers(
        fused(), x=optax.adam(0.05), y=optax.adamw(0.03), z=optax.adam(0.03)
    )
    return diamond.simulate(quad(), ring(4), method, rounds, every=4, progress=False, **options)


@pytest.mark.wide
def test_optimizer_states_are_resumed_to_the_same_bits_also_from_disk(tmp_path):
    whole, half = adam_run(), adam_run(4)
    assert same_bits(adam_run(resume=half).last_x, whole.last_x)
    half.save(tmp_path / "half")
    loaded = diamond.load(tmp_path / "half", quad())
    resumed = adam_run(resume=loaded)
    assert same_bits(resumed.state, whole.state)
    with pytest.raises(ValueError, match=r"x\.optimizer\.text"):
        other = diamond.with_optimizers(
            fused(), x=optax.adam(0.06), y=optax.adamw(0.03), z=optax.adam(0.03)
        )
        diamond.simulate(quad(), ring(4), other, 8, every=4, resume=half, progress=False)


@pytest.mark.wide
def test_several_seeds_at_once_equal_single_runs():
    method = diamond.with_optimizers(fused(beta=0.2), x=optax.adam(0.05))
    runs = [(method, seed) for seed in (0, 1)]
    lanes = simulate_many(quad(), ring(4), runs, 6, every=6, batched=True, progress=False)
    for (_, seed), outcome in zip(runs, lanes):
        alone = diamond.simulate(quad(), ring(4), method, 6, seed, every=6, progress=False)
        np.testing.assert_allclose(
            outcome.history["upper_loss"], alone.history["upper_loss"], rtol=1e-9
        )


@pytest.mark.wide
def test_scaled_steps_scale_the_updates():
    method = diamond.with_optimizers(fused(beta=0.2), x=optax.adam(0.05))
    moved = [
        final_progress(quad(), ring(4), m, 1).state.x
        for m in (method, method.with_scaled_steps(0.25))
    ]
    start = quad().start(0)[0]
    np.testing.assert_allclose(moved[1] - start, 0.25 * (moved[0] - start), rtol=1e-12)


def test_a_file_names_optimizers():
    table = {"name": "f2sa", "optimizers": {"y": "adamw(1e-3)", "z": "adamw(1e-3)"}}
    component = read_algorithm(table)
    assert component.options["optimizers"] == table["optimizers"]
    method = component.build()
    assert method.y.optimizer.text == "adamw(1e-3)" and method.x.optimizer is None
    text = "chain(clip_by_global_norm(1.0), sgd(cosine_decay_schedule(0.1, 10)))"
    by_text, by_hand = parse_optimizer(text), optax.sgd(optax.cosine_decay_schedule(0.1, 10))
    gradient = jnp.array([0.3, -0.4])  # shorter than 1: not clipped
    for transformation in (by_text, by_hand):
        update, _ = transformation.update(gradient, transformation.init(gradient), gradient)
        np.testing.assert_allclose(update, -0.1 * gradient, rtol=1e-12)


@pytest.mark.parametrize(
    "optimizers, message",
    [
        ("adam", "must be a table of texts"),
        ({"y": 0.1}, "must be a table of texts"),
        ({"w": "adam(0.1)"}, "the variables are x, y and z"),
        ({"y": "adamm(0.1)"}, "optax has no 'adamm'; did you mean"),
        ({"y": "adam"}, "is no call of an optimizer"),
        ({"y": "__import__('os')"}, "optax has no '__import__'"),
        ({"y": "adam(open('a'))"}, "optax has no 'open'"),
        ({"y": "adam(0.1, wrong=2)"}, "adam of optax"),
    ],
)
def test_a_wrong_optimizer_in_a_file_is_explained(optimizers, message):
    with pytest.raises(ValueError, match=message):
        read_algorithm({"name": "f2sa", "optimizers": optimizers})


def test_what_takes_no_optimizer_says_so():
    with pytest.raises(ValueError, match="not composed of parts"):
        diamond.with_optimizers(diamond.stable(), y=optax.sgd(0.1))
    with pytest.raises(ValueError, match="has no z; its variables are x, y"):
        diamond.with_optimizers(diamond.dsgd(), z=optax.sgd(0.1))
    with pytest.raises(TypeError, match=r"the optimizer of y is 0\.1"):
        diamond.with_optimizers(diamond.dsgd(), y=0.1)
    known = quad(agents=1, noise=0.0)
    rows = {part: [known.rows[part][0]] for part in ("train", "valid")}
    regularized = diamond.Problem(
        known.upper, known.lower, known.init, **rows, prox=lambda x, step: x
    )
    with pytest.raises(ValueError, match="leave out the optimizer of x"):
        diamond.with_optimizers(fused(), x=optax.sgd(0.1)).specialize(regularized)


def test_text_without_optax_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ImportError, match=r"pip install 'diamond-bilevel\[optax\]'"):
        parse_optimizer("adam(0.1)")


@pytest.mark.wide
def test_a_cosine_schedule_of_optax_is_a_step_size_and_a_penalty():
    cosine = optax.cosine_decay_schedule(0.04, 10)
    own = lambda t: 0.04 * (1 + jnp.cos(jnp.pi * jnp.minimum(t, 10) / 10)) / 2
    states = [
        final_progress(quad(), ring(4), fused(alpha=step, beta=0.2), 9).state.x
        for step in (cosine, own)
    ]
    np.testing.assert_allclose(states[0], states[1], rtol=1e-10)
