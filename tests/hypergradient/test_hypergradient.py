"""Every estimator against closed forms, against written-out numpy, and against each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ESTIMATORS, LOWER, agent_of, flat, logistic, quad, sample_of
from jax.flatten_util import ravel_pytree

import diamond.hypergradient as hg
from diamond.core import threefry
from diamond.core.sampling import Sample
from diamond.hypergradient.diagnostics.lipschitz import SAFETY
from diamond.hypergradient.zeroth_order import PURPOSE

AGENT = 1
ALL_ROWS = Sample(None, None, None, None, jnp.uint32(3))
ROUGH = {"hessian_free": 1e-7}  # differences, not derivatives


@pytest.fixture(scope="module")
def q():
    return quad()


@pytest.fixture(scope="module")
def point():
    random = np.random.default_rng(8)
    return jnp.asarray(random.normal(size=3)), jnp.asarray(random.normal(size=LOWER))


@pytest.fixture(scope="module")
def curved():
    """A problem whose Hessian changes with the point and the rows, a point, one agent."""
    problem = logistic()
    x, y = problem.start(4)
    x = jax.tree.map(lambda a: a + 0.2, x)
    return problem, (x, y), agent_of(problem.objectives(2), AGENT)


@jax.jit
def evaluate(estimator, objectives, points, sample):
    return estimator(objectives, points, sample)[0]


def line(a):
    return np.asarray(ravel_pytree(a)[0])


def surrogate(q, x, y):
    return q.surrogate(np.asarray(x), np.tile(y, (4, 1)))


def parts(q, point):
    """f_y, and the surrogate (4), of the agent in numpy."""
    x, y = map(np.asarray, point)
    f_y = y - q.a[AGENT] + q.D[AGENT].T @ x
    f_x = q.P[AGENT] @ x + q.c[AGENT] + q.D[AGENT] @ y
    return f_y, f_x, f_x + q.B[AGENT].T @ np.linalg.solve(q.A[AGENT], f_y)


@pytest.mark.wide
def test_the_closed_form_is_the_gradient_of_the_closed_form(q):
    rows = q.rows["valid"]

    @jax.jit
    def total(x):
        solve = lambda i: jnp.linalg.solve(q.A[i], q.B[i] @ x + q.b[i])
        return sum(q.upper(x, solve(i), rows[i]) for i in range(4)) / 4

    x = np.array([0.3, -1.0, 0.7])
    np.testing.assert_allclose(q.gradient(x), jax.grad(total)(x), rtol=1e-12)
    slopes = [(total(x + 1e-6 * e) - total(x - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
    np.testing.assert_allclose(q.gradient(x), slopes, rtol=1e-7)
    np.testing.assert_allclose(q.gradient(q.minimizer()), 0, atol=1e-12)
    curvature = np.stack([q.gradient(e) - q.gradient(0 * e) for e in np.eye(3)])
    assert np.linalg.eigvalsh(curvature).min() > 0  # a minimizer, not any stationary point
    y = q.lower_solution(x)[2]
    np.testing.assert_allclose(
        jax.jit(jax.grad(q.lower, 1))(x, y, q.rows["train"][2]), 0, atol=1e-12
    )


@pytest.mark.quick
def test_exact_is_the_closed_form(q, point):
    (result,) = evaluate(hg.exact(), agent_of(q.objectives(), AGENT), [point], ALL_ROWS)
    np.testing.assert_allclose(result, parts(q, point)[2], rtol=1e-10)
    np.testing.assert_allclose(surrogate(q, *point)[AGENT], parts(q, point)[2], rtol=1e-12)


@pytest.mark.quick
def test_conjugate_gradients_are_exact_after_as_many_steps_as_unknowns(q, point):
    objectives, exact = agent_of(q.objectives(), AGENT), parts(q, point)[2]
    error = lambda steps: np.abs(
        evaluate(hg.conjugate_gradient(steps), objectives, [point], ALL_ROWS)[0] - exact
    ).max()
    assert error(LOWER) < 1e-12 < 1e-5 < error(LOWER - 1) < error(1)
    assert error(50) < 1e-12  # going on after the end does no harm


@pytest.mark.wide
def test_lemma_3(q, point):
    """Bias -g_xy H^-1 (I - H/L)^K f_y, exactly; so of order (1 - mu/L)^K, and below the bound."""
    objectives, (f_y, _, exact) = agent_of(q.objectives(), AGENT), parts(q, point)
    A, B, L, mu = q.A[AGENT], q.B[AGENT], 1.5, 0.5
    depths = [1, 2, 4, 8, 16, 24, 32]
    run = lambda o, p: [hg.neumann_sum(K, L)(o, [p], ALL_ROWS)[0][0] for K in depths]
    sizes = []
    for K, result in zip(depths, jax.jit(run)(objectives, point)):
        left = np.linalg.matrix_power(np.eye(LOWER) - A / L, K) @ f_y
        bias = -B.T @ np.linalg.solve(A, left)
        np.testing.assert_allclose(result - exact, bias, rtol=1e-8, atol=1e-14)
        sizes.append(np.linalg.norm(bias))
        bound = np.linalg.norm(B, 2) * np.linalg.norm(f_y) / mu * (1 - mu / L) ** K
        assert 0 < sizes[-1] <= bound
    slope = np.polyfit(depths[-3:], np.log(sizes[-3:]), 1)[0]
    assert slope == pytest.approx(np.log(1 - mu / L), rel=1e-3)


@pytest.mark.quick
@pytest.mark.parametrize("rows", ["blocks", "rows", "all"])
def test_eq_5_averages_over_its_depth_to_the_sum(curved, rows):
    problem, point, objectives = curved
    K, L = 6, 3.0
    sample = ALL_ROWS
    if rows != "all":
        sample = sample_of(problem, AGENT, K, 2, t=3, sampling=rows)
    of_depth = lambda k: hg.neumann(K, L)(objectives, [point], sample._replace(bits=k))[0][0]
    each = jax.jit(jax.vmap(of_depth))(jnp.arange(2 * K, dtype=jnp.uint32))  # each depth twice
    (summed,) = evaluate(hg.neumann_sum(K, L), objectives, [point], sample)
    mean = jax.tree.map(lambda a: a.mean(0), each)
    for single, two in zip(jax.tree.leaves(mean), jax.tree.leaves(summed)):
        np.testing.assert_allclose(single, two, rtol=1e-13)
    depths = flat(each)[:K]
    if rows == "all":  # nothing to sample: the sum, whatever the depth
        np.testing.assert_array_equal(depths, depths[:1].repeat(K, 0))
        return
    assert np.linalg.norm(depths - depths.mean(0), axis=1).min() > 1e-6  # they do differ


@pytest.mark.wide
def test_a_sum_of_one_term_is_that_term(curved):
    problem, point, objectives = curved
    sample = sample_of(problem, AGENT, 1, 2)
    (single,) = evaluate(hg.neumann(1, 3.0), objectives, [point], sample)
    (summed,) = evaluate(
        hg.neumann_sum(1, 3.0), objectives, [point], sample_of(problem, AGENT, 0, 2)
    )
    np.testing.assert_allclose(line(summed), line(single), rtol=1e-13)


@pytest.mark.wide
def test_every_factor_is_on_its_own_rows(curved):
    """Against matrices: f on xi, g_xy on zeta_0, the j-th g_yy on zeta_j (1 for a solver)."""
    problem, (x, y), objectives = curved
    K, L, k = 6, 3.0, 4
    sample = sample_of(problem, AGENT, K, 2, t=5)._replace(bits=jnp.uint32(k))
    assert len(set(np.asarray(sample.chain[:k]))) > 2
    turned, back = ravel_pytree(x)

    def block(part, first):
        rows = problem.rows[part][AGENT]
        return jax.tree.map(lambda a: a[(int(first) + np.arange(2)) % len(a)], rows)

    @jax.jit
    def matrices(first, second):
        """g_yy and g_xy on two blocks."""
        g = lambda x, w, rows: problem.lower(back(x), {"w": w}, rows)
        cross = jax.jacobian(jax.grad(g, 1), 0)(turned, y["w"], second).T
        return jax.hessian(g, 1)(turned, y["w"], first), cross

    f_x, f_y = jax.jit(jax.grad(problem.upper, (0, 1)))(x, y, block("valid", sample.upper))
    hessians = [matrices(block("train", w), block("train", sample.cross)) for w in sample.chain]
    f_x, f_y, cross = line(f_x), np.asarray(f_y["w"]), np.asarray(hessians[0][1])
    terms = [f_y]
    for hessian, _ in hessians:
        terms.append(terms[-1] - np.asarray(hessian) @ terms[-1] / L)
    solved = np.linalg.solve(hessians[0][0], f_y)
    expected = {
        hg.neumann(K, L): K / L * terms[k],
        hg.neumann_sum(K, L): sum(terms[:K]) / L,
        hg.exact(): solved,
        hg.conjugate_gradient(3): solved,
    }
    for estimator, z in expected.items():
        (result,) = evaluate(estimator, objectives, [(x, y)], sample)
        np.testing.assert_allclose(line(result), f_x - cross @ z, rtol=1e-10, atol=1e-12)


@pytest.mark.wide
@pytest.mark.parametrize("name", ESTIMATORS)
def test_all_starts_of_a_block_average_to_all_rows(q, point, name):
    """On the quadratic, where estimates are linear in the rows: unbiased, and blocks are fair."""
    estimator, objectives = ESTIMATORS[name], agent_of(q.objectives(5), AGENT)

    def estimate_at(start, bits):
        chain = jnp.full(estimator.hessian_batches, start)
        return estimator(objectives, [point], Sample(start, start, start, chain, bits))[0][0]

    estimates = jax.vmap(jax.vmap(estimate_at, (None, 0)), (0, None))
    depths = jnp.arange(5, dtype=jnp.uint32)  # of eq. (5), whose mean is that on all rows
    result = jax.jit(estimates)(jnp.arange(12), depths).mean(1)
    (full,) = evaluate(estimator, objectives, [point], ALL_ROWS)
    np.testing.assert_allclose(result.mean(0), full, rtol=ROUGH.get(name, 1e-12), atol=1e-9)
    assert np.abs(result - full).max() > 1e-3


@pytest.mark.wide
@pytest.mark.parametrize("name", ESTIMATORS)
def test_two_points_of_one_sample_meet_and_of_two_samples_do_not(curved, name):
    """Trap 4: momentum lives on h(a; xi) - h(b; xi) -> 0 as a -> b."""
    problem, (x, y), objectives = curved
    estimator = ESTIMATORS[name]
    if name not in ("unrolled", "exact", "conjugate_gradient"):
        estimator = {"neumann": hg.neumann, "neumann_sum": hg.neumann_sum,
                     "hessian_free": hg.hessian_free}[name](5, 3.0)  # fmt: skip
    moved = lambda d: (jax.tree.map(lambda a: a + d, x), jax.tree.map(lambda a: a - d, y))
    run = jax.jit(lambda d, s: estimator(objectives, [(x, y), moved(d)], s)[0])
    apart = []
    samples = [sample_of(problem, AGENT, estimator.hessian_batches, 2, t) for t in range(4)]
    for sample in samples:
        gaps = []
        for d in (1e-2, 1e-3, 1e-4):
            estimate, moved_estimate = run(d, sample)
            gaps.append(np.linalg.norm(line(estimate) - line(moved_estimate)) / d)
        assert gaps[0] == pytest.approx(gaps[2], rel=0.1)  # linear in the distance
        assert gaps[1] == pytest.approx(gaps[2], rel=0.02) and gaps[2] > 1e-3
        apart.append(line(run(0.0, sample)[1]))
        np.testing.assert_allclose(*map(line, run(0.0, sample)), rtol=1e-12)
    others = [np.linalg.norm(a - apart[0]) for a in apart[1:]]
    assert max(others) > 1e-2


@pytest.mark.wide
def test_eq_5_draws_one_depth_for_both_points(q, point):
    sample = sample_of(q, AGENT, 5, 3)
    objectives, away = agent_of(q.objectives(3), AGENT), (point[0] + 1, point[1] - 1)
    for k in range(3):
        s = sample._replace(bits=jnp.uint32(k))
        pair = evaluate(ESTIMATORS["neumann"], objectives, [point, away], s)
        alone = [evaluate(ESTIMATORS["neumann"], objectives, [p], s)[0] for p in (point, away)]
        np.testing.assert_allclose(pair, alone, rtol=1e-14)


@pytest.mark.wide
def test_unrolled_is_the_gradient_of_the_written_out_steps(curved):
    problem, (x, y), objectives = curved
    sample = sample_of(problem, AGENT, 4, 2, t=1)

    def value(x):
        z = y
        for s in range(4):
            block = objectives.train.rows_at(sample.chain[s])
            slope = jax.grad(problem.lower, 1)(x, z, block)
            z = jax.tree.map(lambda a, b: a - 0.4 * b, z, slope)
        return problem.upper(x, z, objectives.valid.rows_at(sample.upper))

    (result,) = evaluate(ESTIMATORS["unrolled"], objectives, [(x, y)], sample)
    expected, value = jax.jit(jax.grad(value))(x), jax.jit(value)
    np.testing.assert_allclose(line(result), line(expected), rtol=1e-12)
    for j in range(3):
        step = jnp.zeros(3).at[j].set(1e-5)
        ahead, behind = value([x[0] + step, x[1]]), value([x[0] - step, x[1]])
        assert result[0][j] == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-6)


@pytest.mark.wide
def test_zeroth_order_is_the_formula_with_its_directions(curved):
    """y_N by written-out steps at x and at every x + mu w, for the w that the bits draw."""
    problem, (x, y), objectives = curved
    sample, spread, count = sample_of(problem, AGENT, 4, 2, t=1), 0.3, 3
    flat_x, unflatten = ravel_pytree(x)

    @jax.jit
    def steps(x):
        z = y
        for s in range(4):
            block = objectives.train.rows_at(sample.chain[s])
            slope = jax.grad(problem.lower, 1)(x, z, block)
            z = jax.tree.map(lambda a, b: a - 0.4 * b, z, slope)
        return z

    key = threefry.typed((jnp.uint32(sample.bits), jnp.uint32(PURPOSE)))
    w = np.asarray(jax.random.normal(key, (count, flat_x.size)))
    near, rows = steps(x), objectives.valid.rows_at(sample.upper)
    f_x, f_y = map(line, jax.grad(problem.upper, (0, 1))(x, near, rows))
    moved = np.stack([line(steps(unflatten(flat_x + spread * v))) - line(near) for v in w])
    expected = f_x + (moved @ f_y / spread) @ w / count
    estimator = hg.zeroth_order(4, 0.4, count, spread)
    (result,) = evaluate(estimator, objectives, [(x, y)], sample)
    np.testing.assert_allclose(line(result), expected, rtol=1e-10)


def test_zeroth_order_is_in_the_mean_that_of_unrolling(q, point):
    """On a quadratic y_N is linear in x, whatever the distance."""
    objectives = agent_of(q.objectives(), AGENT)
    means = [
        evaluate(hg.zeroth_order(4, 0.4, 20000, spread), objectives, [point], ALL_ROWS)[0]
        for spread in (0.1, 2.0)
    ]
    (expected,) = evaluate(ESTIMATORS["unrolled"], objectives, [point], ALL_ROWS)
    np.testing.assert_allclose(means[0], means[1], rtol=1e-9)  # the same directions
    np.testing.assert_allclose(means[0], expected, atol=0.05 * np.abs(expected).max())


def test_unrolling_converges_to_the_hypergradient(q, point):
    objectives = agent_of(q.objectives(), AGENT)
    (result,) = evaluate(hg.unrolled(200, 0.6), objectives, [point], ALL_ROWS)
    x = point[0]
    np.testing.assert_allclose(
        result, q.surrogate(x, q.lower_solution(np.asarray(x)))[AGENT], rtol=1e-10
    )


@pytest.mark.wide
@pytest.mark.parametrize("rows", ["blocks", "all"])
def test_differences_agree_with_products(curved, rows):
    problem, point, objectives = curved
    sample = ALL_ROWS if rows == "all" else sample_of(problem, AGENT, 8, 2)
    (free,) = evaluate(hg.hessian_free(8, 3.0), objectives, [point], sample)
    (summed,) = evaluate(hg.neumann_sum(8, 3.0), objectives, [point], sample)
    np.testing.assert_allclose(line(free), line(summed), rtol=1e-6)


@pytest.mark.wide
@pytest.mark.parametrize("wide", [True, False])
def test_differences_step_as_far_as_single_precision_needs(wide):
    """Also for single-precision data in a process that allows double."""
    with jax.enable_x64(wide):
        problem = logistic(dtype="float32")
        objectives, (x, y) = agent_of(problem.objectives(2), AGENT), problem.start(4)
        sample = sample_of(problem, AGENT, 8, 2)
        (free,) = evaluate(hg.hessian_free(8, 3.0), objectives, [(x, y)], sample)
        (summed,) = evaluate(hg.neumann_sum(8, 3.0), objectives, [(x, y)], sample)
        assert free[0].dtype == jnp.float32
        np.testing.assert_allclose(free[0], summed[0], rtol=2e-3, atol=1e-4)


@pytest.mark.wide
def test_check_reports_what_numpy_finds(q, point):
    draws, batch, K, L = 60, 3, 5, 1.6
    report = hg.check(q, hg.neumann(K, L), *point, batch=batch, draws=draws, seed=2)
    x, y = map(np.asarray, point)
    exact = surrogate(q, x, y)
    values, depths = np.empty((draws, 4, 3)), np.empty(draws)
    for t in range(draws):
        for i in range(4):
            sample = sample_of(q, i, 0, batch, t, seed=2)
            rows = q.rows["valid"][i]["point"]
            a = rows[(int(sample.upper) + np.arange(batch)) % len(rows)].mean(0)
            k = depths[t] = int(sample.bits) % K
            factor = np.linalg.matrix_power(np.eye(LOWER) - q.A[i] / L, int(k))
            z = K / L * factor @ (y - a + q.D[i].T @ x)
            values[t, i] = q.P[i] @ x + q.c[i] + q.D[i] @ y + q.B[i].T @ z
    mean = values.mean(0)
    spread = np.sqrt(((values - mean) ** 2).sum(-1).mean(0))
    np.testing.assert_allclose(report.norm, np.linalg.norm(exact, axis=1), rtol=1e-12)
    np.testing.assert_allclose(report.bias, np.linalg.norm(mean - exact, axis=1), rtol=1e-9)
    np.testing.assert_allclose(report.deviation, spread, rtol=1e-9)
    np.testing.assert_allclose(report.sampling_error, spread / np.sqrt(draws), rtol=1e-9)
    expected = dict(samples=batch * (2 + depths.mean()), gradients=batch,
                  hvps=batch * depths.mean(), jvps=batch)  # fmt: skip
    assert report.cost._asdict() == pytest.approx(expected)
    assert "60 draws" in str(report) and len(str(report).splitlines()) == 7


@pytest.mark.wide
def test_check_measures_single_precision_problems_in_double(float32):
    problem = logistic(dtype="float32")
    report = hg.check(problem, hg.exact(), batch=10, draws=2)  # a block is all rows
    assert report.norm.dtype == np.float64 and (report.bias < 1e-7 * report.norm).all()


@pytest.mark.wide
def test_the_estimated_lipschitz_constant():
    q = quad(rows=6, noise=0.0)
    result, cost = hg.lipschitz(q, *q.start(0), batch=3)
    assert result == pytest.approx(SAFETY * 1.5, rel=0.02)  # the largest eigenvalue is L = 1.5
    assert (cost.samples, cost.hvps, cost.gradients) == (8 * 3, 20 * 8 * 3, 0)
