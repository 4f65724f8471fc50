"""Private methods: what is released, against numpy; the sensitivity of releases; refusals."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("dp_accounting")

import diamond
from diamond.algorithms.parts.private_estimator import clip_to
from diamond.core.sampling import draw, key
from diamond.privacy.private_runs import simulated_words

AGENTS, ROWS, SIZE = 3, 20, 4
EXACT = diamond.hypergradient.conjugate_gradient()


def make_rows(seed, rows=ROWS):
    random = np.random.default_rng(seed)
    draw_rows = lambda: {
        "a": random.normal(size=(rows, SIZE)).astype(np.float32),
        "b": random.normal(size=rows).astype(np.float32),
    }
    return [draw_rows() for _ in range(AGENTS)]


def loss(x, rows):
    return jnp.mean((rows["a"] @ x - rows["b"]) ** 2) / 2


def upper(x, y, rows):
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) / 2


def lower(x, y, rows):
    return upper(x, y, rows) + jnp.sum(jnp.exp(x) * y**2) / 2


def start_alone(key):
    return jnp.arange(SIZE, dtype=jnp.float32)


def start_both(key):
    return jnp.zeros(SIZE), jnp.zeros(SIZE)


def single(train=None, agents=1):
    return diamond.Problem(loss, None, start_alone, train or make_rows(0)[:agents], shuffle=False)


def bilevel(train=None, valid=None, agents=1):
    rows = train or make_rows(0)[:agents], valid or make_rows(1)[:agents]
    return diamond.Problem(upper, lower, start_both, *rows, shuffle=False)


def estimate(algorithm, problem, state=None, t=0, agent=0):
    """The estimate of the only agent of a problem in round t, without an engine."""
    method = jax.tree.map(jnp.asarray, algorithm.specialize(problem))
    objectives = problem.objectives(method.batch).for_agent(0)
    state = method.init(*problem.start(0)) if state is None else state
    rows = objectives.train.stored, objectives.valid.stored
    stage = method.stages[0]
    sample = draw(key(0), t, agent, rows, stage.hessian_batches, method.batch, "blocks")
    (directions, counter), _ = jax.jit(stage.estimate)(objectives, state, t, sample)
    return directions, counter, method


def row_gradients(rows, x):
    return (rows["a"] @ x - rows["b"])[:, None] * rows["a"]


@pytest.mark.quick
def test_without_noise_all_rows_give_the_mean_of_clipped_gradients():
    algorithm = diamond.compose("gradient", "full", alpha=0.1, batch=4)
    private = diamond.private(algorithm, math.inf, clip=1.5, noise_multiplier=0.0)
    (direction, *_), _, method = estimate(private, single())
    gradients = row_gradients(make_rows(0)[0], np.arange(SIZE))
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    assert (norms > 1.5).any() and (norms < 1.5).any()
    expected = (gradients * np.minimum(1, 1.5 / norms)).mean(0)
    np.testing.assert_allclose(direction, expected, rtol=1e-5)
    assert method.estimator.size == 0


@pytest.mark.wide
def test_rows_are_drawn_independently_with_probability_batch_over_rows():
    """Row r adds e_r, so that a release tells its sample."""
    rows = [{"a": np.eye(ROWS, dtype=np.float32)}]
    start = lambda key: jnp.zeros(ROWS)
    problem = diamond.Problem(lambda x, rows: jnp.mean(rows["a"] @ x), None, start, rows)
    algorithm = diamond.compose("gradient", alpha=0.1, batch=5)
    private = diamond.private(algorithm, math.inf, clip=1.0, noise_multiplier=0.0)
    method = jax.tree.map(jnp.asarray, private.specialize(problem))
    objectives = problem.objectives(5).for_agent(0)
    state = method.init(*problem.start(0))
    counts = objectives.train.stored, objectives.valid.stored

    def release(number):
        sample = draw(key(0), number, 0, counts, 0, 5, "blocks")
        later = state._replace(table=number)
        return method.stages[0].estimate(objectives, later, number, sample)[0][0].x

    samples = np.asarray(5 * jax.jit(jax.vmap(release))(jnp.arange(4000)))
    np.testing.assert_allclose(samples, samples > 0.5, atol=1e-6)
    samples = (samples > 0.5) * 1.0
    # Independent draws: means 1/4 and pairwise products 1/16, each to five standard errors.
    assert np.abs(samples.mean(0) - 0.25).max() < 5 * math.sqrt(0.25 * 0.75 / 4000)
    products = samples.T @ samples / 4000
    off_diagonal = products[~np.eye(ROWS, dtype=bool)]
    assert np.abs(off_diagonal - 1 / 16).max() < 5 * math.sqrt(1 / 16 * 15 / 16 / 4000)
    sizes = samples.sum(1)  # blocks would always have 5 rows
    assert sizes.var() == pytest.approx(ROWS * 0.25 * 0.75, rel=0.15)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("algorithm", "problem", "spread"),
    [
        (diamond.dsgd(alpha=0.1, batch=5), single, 1 / 5),
        (diamond.soba(alpha=0.1, beta=0.1, delta=0.1, batch=5), bilevel, math.sqrt(3) / 5),
        (
            diamond.soba(alpha=0.1, beta=0.1, delta=0.1, batch=5),
            lambda: bilevel(train=make_rows(0, 3)[:1]),
            math.sqrt(3) / 3,
        ),
        (
            diamond.soba(alpha=0.1, beta=0.1, delta=0.1, batch=5),
            lambda: bilevel(valid=make_rows(1, 3)[:1]),
            math.sqrt(3) / 3,
        ),
        (diamond.dsgd(alpha=0.1, beta=0.1, batch=5, hypergradient=EXACT), bilevel, 2.0),
        (diamond.diamond(alpha=0.1, beta=0.1, batch=5, hypergradient=EXACT), bilevel, 2.0),
    ],
    ids=["single level", "by row", "few training", "few validation", "whole", "momentum"],
)
def test_noise_has_the_stated_standard_deviation(algorithm, problem, spread):
    """Released minus unreleased: sqrt(k) m c / b by row, 2 m c whole; new for every release.

    b is that of the part with fewer rows in a batch, since a row of either part is protected.
    """
    multiplier, clip, problem = 3.0, 0.7, problem()
    noised = diamond.private(algorithm, math.inf, clip=clip, noise_multiplier=multiplier)
    private = jax.tree.map(jnp.asarray, noised.specialize(problem))
    silent = replace(private, estimator=replace(private.estimator, multiplier=jnp.float32(0)))
    objectives = problem.objectives(5).for_agent(0)
    state = private.init(*problem.start(0))
    counts = objectives.train.stored, objectives.valid.stored

    def noise(number):
        sample = draw(key(0), 0, 0, counts, private.stages[0].hessian_batches, 5, "blocks")
        later = state._replace(table=number)
        release = lambda method: method.stages[0].estimate(objectives, later, 0, sample)[0][0].x
        return release(private) - release(silent)

    values = np.asarray(jax.jit(jax.vmap(noise))(jnp.arange(2000)))
    expected = multiplier * clip * spread
    assert values.std() == pytest.approx(expected, rel=0.05)
    assert abs(values.mean()) < 5 * expected / math.sqrt(values.size)
    correlation = np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1]
    assert abs(correlation) < 5 / math.sqrt(values.size)


def test_another_row_in_place_of_one_moves_a_release_by_at_most_twice_clip_over_batch():
    """By row, at the same released state: a row replaced by another, in x, y and z."""
    algorithm = diamond.soba(alpha=0.1, beta=0.1, delta=0.1, batch=5)
    clips = {"x": 0.3, "y": 0.2, "z": 0.5}
    private = diamond.private(algorithm, math.inf, clip=clips, noise_multiplier=0.0)
    train, valid = make_rows(0), make_rows(1)
    state = replaced = None
    for part in ("train", "valid"):
        for scale in (1.0, 1e6):  # an outlier is bounded too
            rows = {"train": train, "valid": valid}
            changed = {name: value[0]["a"].copy() for name, value in rows.items()}
            without = {name: value[0]["b"].copy() for name, value in rows.items()}
            changed[part][3] *= scale
            other = {n: [{"a": changed[n], "b": without[n]}] for n in rows}
            problem = bilevel(other["train"], other["valid"])
            method = jax.tree.map(jnp.asarray, private.specialize(problem))
            state = method.init(*problem.start(0))._replace(
                y=jnp.ones(SIZE), z=1.0 * jnp.arange(SIZE)
            )
            full, *_ = estimate(private, problem, state)
            # A row of zeros has no gradient but that of the penalty, whose clipped size is known.
            changed[part][3], without[part][3] = 0, 0
            problem = bilevel(other["train"], other["valid"])
            replaced, *_ = estimate(private, problem, state)
            for name, clip in clips.items():
                change = getattr(full, name) - getattr(replaced, name)
                assert np.linalg.norm(change) <= 2 * clip / 5 + 1e-6, (part, scale, name)


@pytest.mark.wide
def test_whole_clipping_bounds_the_direction_whatever_rows_shaped_y():
    """A training row that changed y in earlier rounds moves a release by at most 2 clip.

    Clipping f_x of single rows alone would not: the hypergradient at another y differs more.
    """
    algorithm = diamond.dsgd(alpha=0.1, beta=0.3, batch=5, hypergradient=EXACT)
    private = diamond.private(algorithm, math.inf, clip=0.01, noise_multiplier=0.0)
    free = diamond.private(algorithm, math.inf, clip=1e6, noise_multiplier=0.0)
    far = make_rows(0)
    far[0]["b"] = far[0]["b"] + 1e3
    results = {}
    for name, method in {"private": private, "free": free}.items():
        for rows, train in {"one": make_rows(0), "other": far}.items():
            problem = bilevel(train[:1])
            prepared = jax.tree.map(jnp.asarray, method.specialize(problem))
            state = prepared.init(*problem.start(0))
            for t in range(5):
                directions, counter, _ = estimate(method, problem, state, t)
                y = state.y - 0.3 * directions.y  # y follows all rows, x stays
                state = state._replace(y=y, table=counter)
            results[name, rows] = estimate(method, problem, state, 5)[0].x
    assert np.linalg.norm(results["free", "one"] - results["free", "other"]) > 1
    change = results["private", "one"] - results["private", "other"]
    assert 0 < np.linalg.norm(change) <= 0.02 + 1e-6


def test_values_that_are_not_finite_are_released_as_zero():
    huge = jnp.array([1e30, 1e30], jnp.float32)
    assert (clip_to({"a": huge}, 1.0)["a"] == 0).all()  # its norm overflows
    assert (clip_to(jnp.array([jnp.nan, 1.0]), 1.0) == 0).all()
    np.testing.assert_allclose(clip_to(jnp.array([3.0, 4.0]), 1.0), [0.6, 0.8], rtol=1e-6)


@pytest.mark.wide(keep=["gt_storm"])
@pytest.mark.parametrize("name", ["gt_storm", "momentum_tracking"])
def test_without_clipping_and_noise_a_full_sample_is_the_method_itself(name):
    """All rows in every sample: the private method without noise has the usual trajectory."""
    algorithm = getattr(diamond, name)(alpha=0.1, batch=ROWS)
    private = diamond.private(algorithm, math.inf, clip=1e6, noise_multiplier=0.0)
    problem, network = single(agents=AGENTS), diamond.network.ring(AGENTS)
    runs = [diamond.simulate(problem, network, a, 30, progress=False) for a in (algorithm, private)]
    np.testing.assert_allclose(runs[0].last_x, runs[1].last_x, rtol=2e-4, atol=1e-5)
    assert runs[1].best is None and "a private run does not choose" in runs[1].message


def test_after_the_rounds_of_the_budget_no_row_is_used():
    algorithm = diamond.dsgd(alpha=0.1, batch=5)
    private = diamond.private(algorithm, 2.0, rounds=7, clip=1.0)
    assert np.any(estimate(private, single(), t=6)[0].x)
    assert not np.any(estimate(private, single(), t=7)[0].x)
    with pytest.raises(ValueError, match="8 rounds overspend the privacy budget, which has 7"):
        network = diamond.network.ring(AGENTS)
        diamond.simulate(single(agents=AGENTS), network, private, 8, progress=False)


def test_agents_with_fewer_rows_have_more_noise():
    train = [{k: v[:n] for k, v in rows.items()} for rows, n in zip(make_rows(0), (20, 10, 5))]
    private = diamond.private(diamond.dsgd(alpha=0.1, batch=5), 2.0, rounds=20)
    estimator = private.specialize(single(train)).estimator
    assert (np.diff(estimator.multiplier.values) > 0).all()
    alone = private.specialize(single(train[1:2])).estimator
    assert alone.multiplier == estimator.multiplier.values[1]
    assert not np.array_equal(simulated_words(0), simulated_words(1))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: diamond.private(diamond.gt_sarah(alpha=0.1), rounds=5), "sums of directions"),
        (lambda: diamond.private(diamond.dsgd(alpha=0.1)), "give rounds="),
        (lambda: diamond.private(diamond.dsgd(alpha=0.1), 0, rounds=5), "a budget is above 0"),
        (lambda: diamond.private(diamond.dsgd(alpha=0.1), clip={"w": 1}, rounds=5), "has 'w'"),
        (
            lambda: diamond.private(diamond.dsgd(alpha=0.1), clipping="rows", rounds=5),
            "no clipping 'rows'",
        ),
        (
            lambda: diamond.private(diamond.private(diamond.dsgd(alpha=0.1), rounds=5), rounds=5),
            "private already",
        ),
        (
            lambda: diamond.private(diamond.soba(alpha=0.1), rounds=5).specialize(bilevel()),
            "beta would be learned",
        ),
        (
            lambda: diamond.private(diamond.dsgd(alpha=0.1), rounds=5, clipping="row").specialize(
                bilevel()
            ),
            "no average over rows",
        ),
    ],
)
def test_what_cannot_be_private_is_refused(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


def test_rows_in_both_parts_are_refused_by_row():
    """Such a row influences every release twice, and a row is charged for one part only."""
    algorithm = diamond.soba(alpha=0.1, beta=0.1, delta=0.1, batch=5)
    network = diamond.network.ring(AGENTS)
    train, valid = make_rows(0), make_rows(1)
    for name in ("a", "b"):
        valid[1][name][:2] = train[1][name][4:6]
    problem = bilevel(train, valid)
    private = diamond.private(algorithm, rounds=2)
    with pytest.raises(ValueError, match="2 rows of agent 1 are both training and validation rows"):
        diamond.simulate(problem, network, private, 2, progress=False)
    whole = diamond.private(algorithm, rounds=2, clipping="whole")
    diamond.simulate(problem, network, whole, 2, progress=False)
