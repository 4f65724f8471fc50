"""Numbers that a method learns: curvature, steps and z against what they are in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import final_progress, quad, ring, same_bits
from units import in_units

import diamond
from diamond import hypergradient as hg
from diamond.algorithms.parts.learned_algorithm import MARGIN, LearnedStepsAlgorithm
from diamond.auto import sketch
from diamond.auto.step_learning import StepScalars
from diamond.catalogue import maker
from diamond.engine.pilot_run import learned_numbers
from diamond.schedules.learned import Learned, learned_names, with_learned_values


def test_a_short_vector_is_its_own_sketch():
    a = {"b": jnp.arange(6.0).reshape(2, 3), "a": jnp.ones(4)}
    np.testing.assert_array_equal(sketch.sketch(a), [1, 1, 1, 1, *range(6)])


def test_sketches_keep_inner_products_in_the_mean_and_are_linear():
    a, b = np.random.default_rng(0).normal(size=(2, 400, 1000)).astype(np.float32)
    b = 0.5 * a + b
    short = jax.vmap(sketch.sketch)
    result = np.sum(np.asarray(short(a) * short(b)), 1) / np.sum(a * b, 1)
    assert result.mean() == pytest.approx(1, abs=0.1) and result.std() < 1
    norms = np.linalg.norm(short(a), axis=1) / np.linalg.norm(a, axis=1)
    assert norms.mean() == pytest.approx(1, abs=0.02)
    assert norms.std() == pytest.approx((1 / 2 / sketch.SIZE) ** 0.5, rel=0.3)
    np.testing.assert_allclose(short(a + b), short(a) + short(b), atol=1e-4)


def test_places_of_learned_numbers_are_found_and_filled():
    method = diamond.diamond(alpha=0.1)
    assert learned_names(method) == {"beta", "lipschitz", "z"}
    filled = with_learned_values(method, {"beta": 0.3, "lipschitz": 2.0, "z": jnp.zeros(2)})
    assert learned_names(filled) == set() and filled.schedule_values(0)["beta"] == 0.3
    assert jax.tree.leaves(Learned("alpha")) == []
    given = diamond.gt_sgd(alpha=0.1, beta=0.1, hypergradient=hg.exact())
    assert given.specialize(quad()) == given


@pytest.mark.wide
def test_the_largest_curvature_is_learned_and_steps_stay_below_its_limit():
    """quad has L = 1.5 at every agent, and mu = 0.5."""
    method = maker("solve")(steps="learned", batch=12)
    state = final_progress(quad(noise=0.0), ring(4), method, 60).state
    np.testing.assert_allclose(state.curvature.largest, 1.5, rtol=0.05)
    assert np.all(state.curvature.lag <= MARGIN * 3.01) and np.all(state.curvature.lag >= MARGIN)


@pytest.mark.wide
def test_a_warm_start_carries_the_solution_of_the_linear_system():
    given = quad(noise=0.0)
    method = diamond.gt_sgd(alpha=1e-9, batch=12)  # x stays, y and z settle
    state = final_progress(given, ring(4), method, 200).state
    objectives = given.objectives(12)
    for i in range(4):
        own = objectives.for_agent(i)
        x, y = jax.tree.map(lambda a, i=i: a[i], (state.x, state.y))
        f_y = jax.grad(own.f, 1)(x, y, None)
        g_yy = jax.jacfwd(jax.grad(own.g, 1), 1)(x, y, None)
        np.testing.assert_allclose(state.curvature.z[i], np.linalg.solve(g_yy, f_y), rtol=1e-5)


@pytest.mark.wide
def test_a_warm_start_is_exact_where_it_begins_at_the_solution():
    given = quad(noise=0.0)
    own, (x, y) = given.objectives(12).for_agent(0), given.start(0)
    f_y = jax.grad(own.f, 1)(x, y, None)
    g_yy = jax.jacfwd(jax.grad(own.g, 1), 1)(x, y, None)
    solve = hg.warm_start(3).solve
    from diamond.core.sampling import Sample

    whole = Sample(None, None, None, None, None)
    z = jnp.linalg.solve(g_yy, f_y)
    (result,), _ = with_learned_values(solve, {"z": z, "lipschitz": 2.0})(
        own, [(x, y)], [f_y], whole
    )
    np.testing.assert_allclose(result, z, rtol=1e-9)
    zero = with_learned_values(solve, {"z": jnp.zeros_like(z), "lipschitz": 2.0})
    (result,), _ = zero(own, [(x, y)], [f_y], whole)
    (summed,), _ = hg.neumann_sum(3, 2.0).solve(own, [(x, y)], [f_y], whole)
    np.testing.assert_allclose(result, summed, rtol=1e-9)


@pytest.mark.wide
def test_what_travels_with_x_is_a_few_scalars_and_a_sketch_where_x_is_not_tracked():
    problem = quad()

    def size(method):
        sent = diamond.simulate(problem, ring(4), method, 3, every=1).history["bytes"]
        return sent[3] - sent[2]  # after the first look at the loss

    scalars = len(StepScalars._fields) * 8 * 8
    tracked = size(diamond.gt_sgd(batch=4)) - size(diamond.gt_sgd(0.1, 0.1, batch=4))
    assert tracked == scalars
    gossip = size(diamond.dsgd(batch=4)) - size(diamond.dsgd(0.1, 0.1, batch=4))
    assert gossip == scalars + (3 + 1) * 8 * 8  # x has 3 numbers; and a squared norm


@pytest.mark.wide
def test_agents_come_to_the_same_step():
    state = final_progress(quad(noise=0.1), ring(4), diamond.dsgd(batch=4), 80).state
    alpha = np.asarray(state.step.scalars.alpha)
    assert alpha.max() < 1.3 * alpha.min()


SLOW = (pytest.param(name, marks=pytest.mark.slow) for name in ("itd", "stable", "vrbo"))


@pytest.mark.wide
@pytest.mark.parametrize("name", ["diamond", "dsgd", "extra", "f2sa", *SLOW])
def test_steps_do_not_depend_on_units(name):
    """The same trajectory for x in other units, to rounding."""
    make, scale = getattr(diamond, name), 2.0**20
    problem, other = in_units(quad()), in_units(quad(), scale)
    batch = {} if name == "itd" else {"batch": 3}
    one, two = (
        final_progress(given, ring(4), make(**batch), 12).state.x for given in (problem, other)
    )
    np.testing.assert_allclose(one, two / scale, rtol=1e-6, atol=1e-9)


def test_a_rollback_shortens_learned_and_given_steps():
    method = diamond.gt_sgd(beta=0.4).specialize(quad())
    assert isinstance(method, LearnedStepsAlgorithm)
    shorter = method.with_scaled_steps(0.25)
    assert shorter.caution == 4 and float(shorter.method.schedule_values(0)["beta"]) == 0.1
    assert learned_names(shorter.method) == learned_names(method.method)


@pytest.mark.wide
def test_the_pilot_has_learned_what_a_run_has_after_25_rounds():
    problem, method = quad(noise=0.1), diamond.gt_sgd(batch=4)
    result = learned_numbers(problem, ring(4), method, 0)
    run = diamond.simulate(problem, ring(4), method, 25, every=25)
    assert result["alpha"] == run.history["alpha"][-1] and result["beta"] == run.history["beta"][-1]
    assert result["lipschitz"] > 1.5


@pytest.mark.wide
def test_a_seed_gives_the_same_steps_whatever_is_measured():
    problem, method = quad(), diamond.diamond(batch=4)
    one, two = (diamond.simulate(problem, ring(4), method, 30, every=k) for k in (30, 7))
    assert same_bits(one.state, two.state)
