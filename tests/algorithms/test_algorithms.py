"""The contract, for every algorithm in the folder; and where each of them ends up."""

from functools import partial

import jax
import numpy as np
import pytest
from helpers import (
    ALGORITHMS,
    ESTIMATORS,
    METHODS,
    build,
    final_progress,
    logistic,
    quad,
    ring,
    same_bits,
)

import diamond
from diamond import hypergradient as hg
from diamond.core import cost_counter
from diamond.core.sampling import key
from diamond.engine.round_program import initial_progress, run_round
from diamond.network.mixing.mixer import mixer
from diamond.schedules.deferred import ResolutionContext, resolve, select_agent_values


def test_the_folder_is_the_catalogue():
    assert set(METHODS) >= set(ALGORITHMS) and len(METHODS) >= 40
    makers = {name: make for name, make in METHODS.items() if name != "solve"}  # which runs it
    assert all(getattr(diamond, name) is make for name, make in makers.items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_is_a_pytree_of_numbers_that_is_made_without_arguments(name):
    algorithm = resolve(ALGORITHMS[name](), ResolutionContext(quad(), ring(4), 4, 0)).algorithm
    assert algorithm.batch >= 1 and algorithm.stages[0].hessian_batches >= 0
    x, y = quad().start(0)
    learned = select_agent_values(algorithm, 3).learned_values(algorithm.init(x, y))
    assert learned.keys() == {"alpha", "beta"}
    again = jax.tree.unflatten(jax.tree.structure(algorithm), jax.tree.leaves(algorithm))
    assert same_bits(again, algorithm) and hash(jax.tree.structure(algorithm)) is not None


# Blocks in single precision are in `test_methods`, for every method.
@pytest.mark.wide
@pytest.mark.parametrize("dtype, sampling", [("float32", "rows"), ("float64", "blocks")])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_state_and_message_keep_tree_shape_and_type(name, dtype, sampling):
    problem = logistic(dtype=dtype)
    steps = dict(alpha=0.1, beta=0.1, eta=0.5, gamma=0.5)
    algorithm = build(name, batch=2, hypergradient=hg.neumann_sum(3, 3.0), period=2, **steps)
    algorithm = resolve(algorithm, ResolutionContext(problem, None, 2, 0)).algorithm
    first = initial_progress(algorithm, *problem.start(0), problem.agents)
    step = partial(run_round, algorithm, problem.objectives(algorithm.batch), mixer(ring(3)))
    described = lambda a: jax.tree.map(lambda a: (a.shape, a.dtype, a.weak_type), a)
    with jax.numpy_rank_promotion("raise"):  # the core relies on no silent broadcast
        after = jax.eval_shape(partial(step, key(0), sampling), first)
    assert described(after) == described(jax.eval_shape(lambda a: a, first))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(after.state)} == {dtype}
    x, y = problem.start(0)
    assert jax.tree.structure(after.state.x) == jax.tree.structure(x)
    assert jax.tree.structure(after.state.y) == jax.tree.structure(y)
    (stage,) = algorithm.stages
    assert stage.sends_before_gradient
    outgoing = jax.vmap(partial(stage.outgoing, estimate=None, t=0))
    messages = [jax.eval_shape(outgoing, p.state) for p in (first, after)]
    assert described(messages[0]) == described(messages[1])


@pytest.mark.wide
def test_it_runs_on_nested_trees():
    algorithm = diamond.diamond(0.2, 0.5, 0.5, 0.5, 2, hg.neumann_sum(3, 3.0))
    state = final_progress(logistic(), ring(3), algorithm, 6).state
    start_x, start_y = logistic().start(0)
    for after, before in ((state.x, start_x), (state.y, start_y)):
        for one, two in zip(jax.tree.leaves(after), jax.tree.leaves(before)):
            assert one.shape == (3, *two.shape) and np.isfinite(one).all()
            assert np.abs(one - two[None]).min() > 0  # every number of every agent has moved


@pytest.mark.wide(keep=["hessian_free"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_works_in_single_precision(name, float32):
    estimator = ESTIMATORS[name]
    problem = logistic(dtype="float32")
    steps = dict(alpha=0.1, beta=0.1, eta=0.5, gamma=0.5)
    given = build("diamond", batch=2, hypergradient=estimator, **steps)
    algorithm = resolve(given, ResolutionContext(problem, None, 2, 0)).algorithm
    first = initial_progress(algorithm, *problem.start(0), problem.agents)
    step = partial(run_round, algorithm, problem.objectives(2), mixer(ring(3)), key(0), "blocks")
    kinds = {leaf.dtype.name for leaf in jax.tree.leaves(jax.eval_shape(step, first).state)}
    assert kinds == {"float32"}


@pytest.mark.wide
def test_interact_is_exact_also_with_noisy_and_unequal_rows():
    q = quad(noise=1.0, rows=(12, 5, 1, 9))
    state = final_progress(
        q, ring(4), diamond.interact(0.1, 0.5, 7, hg.conjugate_gradient(4)), 1500
    ).state
    np.testing.assert_allclose(state.x, np.tile(q.minimizer(), (4, 1)), atol=1e-12)


def test_interact_takes_no_more_cg_steps_than_y_has_numbers():
    counts = [12, 5, 1, 9]
    problem = quad(noise=1.0, rows=tuple(counts))
    result, exact = (
        final_progress(problem, ring(4), diamond.interact(0.1, 0.5, **given), 3)
        for given in ({}, {"hypergradient": hg.conjugate_gradient(4)})
    )
    assert cost_counter.total(result.spent)[:, 2].tolist() == [3 * 4 * n for n in counts]  # y has 4
    assert same_bits(result.state, exact.state)


@pytest.mark.wide
def test_diamond_comes_closer_with_more_rounds():
    """Noise, eq. (5), decaying steps: Theorem 1's regime."""
    q = quad(noise=0.5)
    steps = diamond.schedules.paper(c_alpha=0.3, c_beta=2.0, c_eta=2.0, c_gamma=2.0)
    algorithm = diamond.diamond(**steps, batch=2, hypergradient=hg.neumann(12, 1.6))

    def error(rounds, seed):
        x = np.asarray(final_progress(q, ring(4), algorithm, rounds, seed).state.x)
        return np.linalg.norm(x - q.minimizer())

    errors = [np.mean([error(rounds, seed) for seed in range(3)]) for rounds in (50, 400, 3200)]
    assert errors[1] < 0.5 * errors[0] and errors[2] < 0.5 * errors[1]
