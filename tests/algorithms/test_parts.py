"""Moves, plans and composed methods: against loops written out, and what does not fit together."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from fast_compilation import skip_measures
from helpers import final_progress, progress_by_round, quad, ring, same_bits

import diamond
from diamond import hypergradient as hg
from diamond.algorithms.parts import communication
from diamond.algorithms.parts.communication_rules import CommunicationInputs
from diamond.algorithms.parts.directions import penalty_on_half
from diamond.algorithms.parts.variables import Point
from diamond.core import pytrees
from diamond.core.cost_counter import total
from diamond.core.sampling import Sample
from diamond.interface.round_interface import Message
from diamond.network import from_graph
from diamond.schedules.deferred import ResolutionContext, fill_deferred

ALPHA, ROUNDS = 0.1, 12


def two_step(q, M, rounds, name):
    """EXTRA and exact diffusion as the papers write them, without duals; x of every round."""
    m, W = len(M), M
    gradient = lambda x: np.einsum("iab,ib->ia", q.P, x) + q.c
    x = [np.zeros(q.c.shape)]
    if name == "extra":
        x.append(W @ x[0] - ALPHA * gradient(x[0]))
        for _ in range(rounds - 1):
            change = gradient(x[-1]) - gradient(x[-2])
            x.append((np.eye(m) + W) @ x[-1] - (np.eye(m) + W) / 2 @ x[-2] - ALPHA * change)
        return x
    if np.linalg.eigvalsh(M).min() < -1e-12:
        W = (np.eye(m) + M) / 2
    psi = x[0]
    for _ in range(rounds):
        new = x[-1] - ALPHA * gradient(x[-1])
        x.append(W @ (new + x[-1] - psi))
        psi = new
    return x


@pytest.mark.wide
@pytest.mark.parametrize("name", ["extra", "exact_diffusion"])
@pytest.mark.parametrize("mixing", ["laplacian", "metropolis"])
def test_corrections_are_their_two_step_forms(name, mixing):
    q = quad(lower_level="none", noise=0.0)
    network = ring(4, mixing)  # by Metropolis M has the eigenvalue -1/3
    method = getattr(diamond, name)(ALPHA, batch=2)
    result = progress_by_round(q, network, method, ROUNDS)
    for progress, x in zip(result, two_step(q, network.matrix, ROUNDS, name), strict=True):
        np.testing.assert_allclose(progress.state.x, x, atol=1e-13)


def by_hand(q, M, rounds):
    """GT-SGD and GT-STORM (atc) in numpy, without noise; x after the last round."""
    gradient = lambda x: np.einsum("iab,ib->ia", q.P, x) + q.c
    x, u, old = np.zeros(q.c.shape), 0.0, 0.0
    for _ in range(rounds):
        new = gradient(x)
        u = u + new - old
        x, u, old = M @ (x - ALPHA * u), M @ u, new
    return x


@pytest.mark.quick
@pytest.mark.parametrize("name", ["gt_sgd", "gt_storm", "gt_sarah", "gt_saga", "interact"])
def test_single_level_tracking_is_the_loop_written_by_hand(name):
    """Without noise all estimators are the gradient, but for the first passes of a table."""
    q = quad(lower_level="none", noise=0.0, rows=2)
    given = {"batch": 2} if name != "interact" else {}
    weights = {"eta": 0.3} if name == "gt_storm" else {}
    result = final_progress(
        q, ring(4), getattr(diamond, name)(ALPHA, order="atc", **given, **weights), 9
    )
    np.testing.assert_allclose(result.state.x, by_hand(q, ring(4).matrix, 9), atol=1e-13)


def test_duals_add_up_to_nothing():
    q = quad(lower_level="none")
    for name in ("extra", "exact_diffusion"):
        for progress in progress_by_round(q, ring(4), getattr(diamond, name)(ALPHA, batch=2), 6)[
            1:
        ]:
            np.testing.assert_allclose(np.sum(progress.state.memory.x, 0), 0, atol=1e-14)
        assert np.abs(progress.state.memory.x).max() > 1e-3


@pytest.mark.wide
@pytest.mark.parametrize("name", ["extra", "exact_diffusion", "gt_sgd"])
def test_single_precision_does_not_drift(name, float32):
    """What all agents have in common is in no difference, so it is never rounded away."""
    q = quad(lower_level="none", noise=0.0, rows=2)
    x = final_progress(q, ring(4), getattr(diamond, name)(0.3, batch=2), 100_000).state.x
    assert x.dtype == np.float32
    assert np.abs(np.asarray(x) - q.minimizer()).max() < 1e-5


def test_a_matrix_that_corrections_cannot_take_is_refused():
    network = from_graph(nx.complete_bipartite_graph(3, 3), "metropolis")
    assert network.min_eigenvalue < -1 / 3
    context = ResolutionContext(quad(agents=6), network, 1, 0)
    assert (
        fill_deferred(communication.diffusion(), context).share == 0.5
    )  # by itself, it takes (I + M) / 2
    with pytest.raises(ValueError, match=r"an eigenvalue -0\.\d+; exact diffusion needs"):
        fill_deferred(communication.diffusion(lazy=False), context)
    fine = ResolutionContext(quad(agents=6), ring(6), 1, 0)
    assert fill_deferred(communication.diffusion(lazy=False), fine).share == 1
    assert (
        communication.extra().share == 1 and communication.extra(lazy=True).share == 0.5
    )  # on any network


def growth(rule, value, curvature=0.0):
    """The largest factor in a round of a mode on which M is `value` and d is `curvature` s."""

    def one_round(s, memory):
        inputs = CommunicationInputs(s, memory, curvature * s, None, 1.0)
        sent = rule.outgoing(inputs)
        return rule.incoming(inputs, sent, Message((value - 1) * sent.average))

    columns = [one_round(*unit) for unit in np.eye(2)]
    return np.abs(np.linalg.eigvals(np.transpose(columns))).max()


@pytest.mark.quick
def test_corrections_are_stable_for_the_eigenvalues_that_the_docs_say():
    roots = lambda *polynomial: np.abs(np.roots(polynomial)).max()
    for value in np.linspace(-1.95, 0.95, 30):
        extra, diffusion = (
            growth(communication.Extra(), value),
            growth(communication.Diffusion(), value),
        )
        assert extra == pytest.approx(roots(1, -(1 + value), (1 + value) / 2), abs=1e-7)
        assert diffusion == pytest.approx(roots(1, -2 * value, value), abs=1e-7)
        assert (extra < 1) == (value > -5 / 3) and (diffusion < 1) == (value > -1 / 3)
        if value > -1:  # of any mixing matrix: the slow modes die faster than by (I + M) / 2
            assert extra == pytest.approx(((1 + value) / 2) ** 0.5, abs=1e-7)
            longest = (5 + 3 * value) / 4
            assert growth(communication.Extra(), value, 0.99 * longest) < 1
            assert growth(communication.Extra(), value, 1.01 * longest) > 1


def test_extra_takes_the_mixing_matrix_itself_and_is_faster_by_it():
    """M of K_{3,3} by Metropolis has the eigenvalues 1, 1/4 and -1/2."""
    q = quad(agents=6, lower_level="none", noise=0.0, rows=2)
    network = from_graph(nx.complete_bipartite_graph(3, 3), "metropolis")
    assert network.min_eigenvalue == pytest.approx(-0.5)
    full = diamond.extra(ALPHA, batch=2)
    half = replace(full, x=replace(full.x, communication=communication.extra(lazy=True)))
    apart = lambda x: np.abs(np.asarray(x) - np.mean(x, 0)).max()
    fast, slow = (final_progress(q, network, method, 40).state.x for method in (full, half))
    assert apart(fast) < 0.25 * apart(slow)
    x = final_progress(q, network, full, 3000).state.x
    np.testing.assert_allclose(x, np.tile(q.minimizer(), (6, 1)), atol=1e-9)


STEPS = dict(alpha=0.05, beta=0.2, delta=0.2, theta=0.5, batch=3)


@pytest.mark.wide
def test_sparkle_with_local_y_and_z_is_lopa():
    composed = diamond.compose("carried", "average", x="gt", y="local", **STEPS)
    assert composed == diamond.lopa(**STEPS, order="atc")
    one, two = (final_progress(quad(), ring(4), m, 5) for m in (composed, diamond.lopa(**STEPS)))
    assert not same_bits(one.state.x, two.state.x)  # which mixes before the step


@pytest.mark.quick
def test_composed_methods_are_those_of_the_catalogue():
    plain = dict(alpha=0.05, beta=0.2, batch=3, hypergradient=hg.neumann())
    momentum = plain | dict(eta=0.3, gamma=0.3)
    assert diamond.compose(**plain) == diamond.gt_sgd(**plain, order="atc")
    assert diamond.compose(estimator="momentum", **momentum) == diamond.diamond(
        **momentum, order="atc"
    )
    assert diamond.compose("carried", "average", y="ed", **STEPS) == diamond.sparkle(**STEPS)
    assert diamond.compose("carried", "average", "gossip", "gossip", **STEPS) == diamond.d_soba(
        **STEPS
    )
    assert diamond.compose("gradient", x="ed", alpha=0.1).lower_levels == ("none",)


@pytest.mark.wide
@pytest.mark.parametrize("yz", ["gt", "ed", "extra"])
@pytest.mark.parametrize("x", ["gt", "ed", "extra"])
def test_all_nine_pairs_of_corrections_reach_the_common_solution(x, yz):
    q = quad(noise=0.0, rows=2, lower_level="common")
    method = diamond.sparkle(0.05, 0.2, 0.2, 0.5, x=x, yz=yz, batch=2)
    state = final_progress(q, ring(4), method, 3000).state
    np.testing.assert_allclose(state.x, np.tile(q.minimizer(), (4, 1)), atol=1e-9)
    np.testing.assert_allclose(state.y, q.lower_solution(q.minimizer()), atol=1e-9)


def test_differences_of_gradients_stand_for_both_products():
    """D-SOBA-FO is D-SOBA where g is quadratic, but for rounding; and makes no products."""
    problem = quad(lower_level="common")
    given = dict(alpha=0.05, beta=0.2, delta=0.2, theta=0.5, batch=3)
    one, two = (
        final_progress(problem, ring(4), diamond.d_soba(**given, first_order=f), 8) for f in (0, 1)
    )
    np.testing.assert_allclose(one.state.x, two.state.x, atol=1e-9)
    np.testing.assert_allclose(one.state.z, two.state.z, atol=1e-9)
    assert np.abs(two.state.z).min() > 1e-3
    products = total(two.spent)[:, 2:]
    assert not products.any() and total(one.spent)[:, 2:].all()


def test_f_of_a_penalty_may_take_half_of_its_mini_batch():
    problem, batch = quad(), 5
    algorithm = penalty_on_half(10.0)
    objectives = problem.objectives(batch).for_agent(0)
    x, y = problem.start(0)
    point = Point(x, y, pytrees.scale(0.5, y))
    sample = Sample(upper=jnp.int32(3), lower=jnp.int32(1), cross=None, chain=None, bits=None)
    (directions,), cost = algorithm(objectives, [point], sample, "xyz", 0)
    first_three = replace(objectives, valid=replace(objectives.valid, batch=3))
    f_x, f_y = jax.grad(first_three.f, (0, 1))(x, point.z, jnp.int32(3))
    g_x, g_z = jax.grad(objectives.g, (0, 1))(x, point.z, jnp.int32(1))
    at_y = jax.grad(objectives.g, (0, 1))(x, y, jnp.int32(1))
    expected = [pytrees.axpy(10.0, pytrees.sub(g_x, at_y[0]), f_x), at_y[1]]
    expected.append(pytrees.axpy(0.1, f_y, g_z))
    for ours, theirs in zip(jax.tree.leaves(directions), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert cost.samples == 3 + 5 and cost.gradients == 3 + 2 * 5


@pytest.mark.wide
def test_one_after_another_the_later_sees_the_earlier():
    q = quad(noise=0.0, rows=2, lower_level="common")
    given = dict(alpha=0.05, beta=0.2, delta=0.2, theta=1.0, batch=2)
    at_once, in_turn = (
        progress_by_round(q, ring(4), diamond.sparkle(**given, plan=plan), 2)
        for plan in ("xyz", "y z x")
    )
    assert same_bits(at_once[1].state.y, in_turn[1].state.y)  # y comes first
    f_y = lambda y: y - q.a  # at x = 0
    y = np.asarray(in_turn[1].state.y)
    step_of_z = 0.2 * f_y(y)  # z_0 = 0, so z moves along f_y at the new y
    lazy = ring(4).matrix if ring(4).min_eigenvalue >= -1e-12 else (np.eye(4) + ring(4).matrix) / 2
    np.testing.assert_allclose(in_turn[1].state.z, lazy @ step_of_z, atol=1e-13)
    np.testing.assert_allclose(at_once[1].state.z, lazy @ (0.2 * f_y(0 * y)), atol=1e-13)


@pytest.mark.quick
@pytest.mark.parametrize(
    "options, message",
    [
        (dict(directions="upwards"), "no directions 'upwards'; there are implicit, carried"),
        (dict(estimator="guess"), "no estimator 'guess'; there are plain, full, average"),
        (dict(x="hop"), "no communication rule 'hop'; there are local, gossip, gt, extra, ed"),
        (dict(update_order="y y x"), "update_order 'y y x' must move each of x, y once"),
        (dict(update_order="yx*0"), "update_order 'yx\\*0': how often is a whole number"),
        (dict(update_order="xw y"), "update_order 'xw y' must move each of x, y once"),
        (dict(y="gt", lower_level="personal"), "a personal lower level is each agent's own"),
        (dict(y="local", lower_level="common"), "a common lower level must be agreed upon"),
        (dict(estimator="saga"), "a table of blocks needs directions carried, penalty or gradient"),
        (dict(order="late"), "no order 'late'; there are 'paper' and 'atc'"),
        (dict(theta=0.5), "theta is no number of these parts; they have alpha, beta"),
        (dict(x="local"), "x must be agreed upon: it cannot be 'local'"),
        (dict(inner=0, update_order="y*inner x"), "inner = 0 must be a whole number, 1 or more"),
        (dict(estimator="recursive", period=0), "period = 0: the number of rounds"),
    ],
)
def test_what_does_not_fit_together_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        diamond.compose(**options)


def test_a_table_needs_blocks_that_divide_the_rows():
    given = quad(rows=(12, 6, 12, 9), lower_level="none"), ring(4)
    with pytest.raises(
        ValueError, match=r"agent 1 has 6 .* which batches of 4 do not divide.*batch=3"
    ):
        diamond.simulate(*given, diamond.gt_saga(0.1, batch=4), 1)
    with pytest.raises(ValueError, match="a table of blocks needs sampling='blocks'"):
        diamond.simulate(*given, diamond.gt_saga(0.1, batch=3), 1, sampling="rows")


@pytest.mark.wide
def test_a_table_takes_the_noise_away():
    """SAGA ends where the full gradient does, a mini-batch does not."""
    q = quad(lower_level="none", noise=1.0)
    error = lambda method: np.abs(
        final_progress(q, ring(4), method, 800).state.x - q.minimizer()
    ).max()
    assert error(diamond.gt_saga(0.1, batch=3)) < 1e-9 < 1e-2 < error(diamond.gt_sgd(0.1, batch=3))


@pytest.mark.wide
def test_momentum_leaves_less_noise_than_a_mini_batch():
    """DIAMOND for a common lower level beside SPARKLE, the same steps and samples: where y ends."""
    q = quad(lower_level="common", noise=2.0)
    given = dict(alpha=0.01, beta=0.05, delta=0.05, batch=2)
    averaged = diamond.diamond_common(**given, eta=0.03, gamma=0.03)
    plain = diamond.sparkle(**given, theta=1.0)
    best = q.lower_solution(q.minimizer())

    def error(method):
        ends = [final_progress(q, ring(4), method, 3000, seed).state.y for seed in range(4)]
        return np.mean([np.sum((np.asarray(y) - best) ** 2) for y in ends])

    assert error(averaged) < 0.5 * error(plain)


def metric(q, x, y):
    """Stationarity, consensus and error of y, by the closed forms."""
    mean = x.mean(0)
    at = x if q.lower_level == "personal" else [mean] * 4
    best = np.stack([q.lower_solution(own)[i] for i, own in enumerate(at)])
    error = 0.0 if q.lower_level == "none" else np.sum((best - y) ** 2)
    return np.sum(q.gradient(mean) ** 2) + np.sum((x - mean) ** 2) + error


@pytest.mark.wide
@pytest.mark.parametrize(
    "method, lower_level",
    [
        (diamond.sparkle(batch=8), "common"),
        (diamond.ma_dsbo(batch=8), "common"),
        (diamond.mdbo(batch=8), "common"),
        (diamond.extra(batch=8), "none"),
        (diamond.amigo(batch=8), "personal"),
        (diamond.stable(batch=8), "personal"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_steps_that_choose_themselves_make_progress_unattended(method, lower_level, monkeypatch):
    """One of each rule: common and agreed upon, inner loops, averages, no lower level, matrices."""
    skip_measures(monkeypatch)
    q = quad(lower_level=lower_level, rows=16, noise=0.3)
    run = diamond.simulate(q, ring(4), method, 150, every=150)
    x, mean = np.asarray(run.last_x), np.asarray(run.last_x).mean(0)
    assert q.gradient(mean / 2) @ mean < 0  # l(mean) - l(0), of a quadratic
    y = 0.0 if run.last_y is None else np.asarray(run.last_y)
    assert metric(q, x, y) < metric(q, np.zeros_like(x), np.zeros_like(y))
    assert "shrunk" not in run.resolved and run.history["alpha"][-1] > 0
