"""Quasi-Newton steps of `solve`: where they end, units, samples, costs, resuming."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import quad, ring
from random_problems import random_problem
from units import in_units

import diamond
from diamond.algorithms.parts.quasi_newton import QuasiNewton
from diamond.algorithms.parts.solver import TOLERANCES
from diamond.algorithms.solve import solve
from diamond.auto.quasi_newton_control import DONE, STUCK, first_rows
from diamond.problem import Problem
from diamond.schedules.deferred import specialize

ROUNDS = 400


def gap(given, run):
    """The distance to the minimizer, relative to that of the start."""
    expected = given.minimizer()
    return np.linalg.norm(np.asarray(run.x) - expected, axis=1).max() / np.linalg.norm(expected)


@pytest.mark.wide(keep=["personal"])
@pytest.mark.parametrize("level", ["personal", "common", "none"])
def test_it_ends_at_the_minimizer_of_every_kind_of_problem(level):
    given = quad(noise=0.3, lower_level=level)
    run = diamond.solve(given, ring(4), accuracy="exact")
    assert gap(given, run) < 1e-3 and run.message.startswith("converged: the gradient is")
    losses = run.history["upper_loss"]
    assert losses[-1] <= losses.min() + 1e-9
    assert run.history["rows"][-1] == 12 and run.history["accepted"][-1] > 2
    np.testing.assert_array_equal(run.x, np.broadcast_to(run.x[0], run.x.shape))


@pytest.mark.wide
@pytest.mark.parametrize("level", ["personal", "common", "none"])
def test_all_agents_hold_the_same_control(level):
    """Else they would branch differently."""
    given = quad(noise=0.3, lower_level=level)
    for rounds in (3, 9, 21):
        run = diamond.simulate(given, ring(4), solve(batch=4), rounds, every=rounds)
        for leaf in jax.tree.leaves(run.state.control):
            np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))


NETWORKS = {
    "one way": diamond.network.one_way_ring(4),
    "changing": diamond.network.one_peer(4),
    "lossy": ring(4).through(diamond.network.channels.drops(0.2)),
}


@pytest.mark.wide
@pytest.mark.parametrize("name", NETWORKS)
def test_other_networks_change_costs_but_not_the_steps(name):
    """The mean is exact, up to the order of additions."""
    given = quad(noise=0.0)
    usual = diamond.simulate(given, ring(4), solve(batch=4), 6, every=6)
    other = diamond.simulate(given, NETWORKS[name], solve(batch=4), 6, every=6)
    np.testing.assert_allclose(other.last_x, usual.last_x, rtol=1e-8)
    np.testing.assert_array_equal(other.costs["gradients"], usual.costs["gradients"])


@pytest.mark.wide
@pytest.mark.parametrize(
    ("x_scale", "y_scale", "value"),
    [(1e6, 1.0, 1.0), (1e-6, 1.0, 1.0), (1.0, 1e6, 1.0), (1.0, 1.0, 1e-6), (1e-6,) * 3],
)
def test_units_do_not_matter(x_scale, y_scale, value):
    problems = in_units(quad()), in_units(quad(), x_scale, y_scale, value)
    runs = [diamond.simulate(p, ring(4), solve(batch=3), 8, every=8) for p in problems]
    np.testing.assert_allclose(np.asarray(runs[1].x) / x_scale, runs[0].x, rtol=1e-5, atol=1e-8)
    for name in ("gradients", "hvps", "jvps"):
        np.testing.assert_allclose(runs[1].costs[name], runs[0].costs[name], rtol=0.05)


def penalties_in_float32(x=1.0, y=1.0, upper=1.0, lower=1.0, data=1.0, shift=0.0):
    """Penalties of four logistic regressions, in these units, the upper loss shifted."""
    random = np.random.default_rng(1)

    def site():
        a = random.normal(size=(60, 6))
        b = 1.0 * (a[:, 0] - a[:, 1] + random.logistic(size=60) > 0)
        return {"a": (data * a).astype(np.float32), "b": b.astype(np.float32)}

    def loss(weights, rows):
        margin = rows["a"] / data @ (weights / y)
        return jnp.mean(jnp.logaddexp(0, margin) - rows["b"] * margin)

    def f(penalties, weights, rows):
        return upper * (loss(weights, rows) + 1e-3 * jnp.mean((penalties / x) ** 2)) + shift

    def g(penalties, weights, rows):
        return lower * (loss(weights, rows) + jnp.mean(jnp.exp(penalties / x) * (weights / y) ** 2))

    start = jnp.zeros(6, jnp.float32)
    parts = [[site() for _ in range(4)] for _ in range(2)]
    return Problem(f, g, lambda key: (start, start), *parts)


def solve_in_float32(**units):
    run = diamond.solve(penalties_in_float32(**units), ring(4), every=1, measure="loss")
    assert run.message.startswith("converged")
    return run, sum(run.history[name][-1] for name in ("gradients", "hvps", "jvps"))


@pytest.mark.wide
@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
@pytest.mark.parametrize("name", ["x", "y", "upper", "lower", "data"])
def test_units_do_not_matter_in_float32(name, unit):
    """Units that are powers of two round nothing, so that every bit stays."""
    (usual, calls), (other, other_calls) = solve_in_float32(), solve_in_float32(**{name: unit})
    assert usual.x.dtype == np.float32 and other_calls == calls
    np.testing.assert_array_equal(other.x / (unit if name == "x" else 1), usual.x)


@pytest.mark.wide
def test_the_end_does_not_hang_on_rounding():
    """Below rounding, slopes replace values: also where all of the decrease is below it."""
    (usual, calls), (shifted, shifted_calls) = solve_in_float32(), solve_in_float32(shift=1e4)
    losses = usual.history["upper_loss"]
    at_99 = np.argmax(losses <= losses[0] - 0.99 * (losses[0] - losses.min()))
    costs = sum(usual.history[name] for name in ("gradients", "hvps", "jvps"))
    assert calls < 2 * costs[at_99]
    assert abs(shifted_calls - calls) <= 0.05 * calls
    np.testing.assert_allclose(shifted.x, usual.x, atol=0.02)


def check_random_problem(seed):
    """No accepted step raises the loss of its sample, so no run ends above its start."""
    problem, network = random_problem(seed)
    run = diamond.solve(problem, network, rounds=ROUNDS)
    losses = run.history["upper_loss"]
    rounding = 1e-6 * np.abs(losses[0])
    assert np.isfinite(losses).all()
    assert losses[-1] <= losses[0] + rounding
    assert run.message


@pytest.mark.wide(keep=["0"])
@pytest.mark.parametrize("seed", range(20))
def test_a_random_problem_never_ends_above_its_start(seed):
    check_random_problem(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_a_thousand_random_problems_never_end_above_their_start(block):
    """Every other one in float32."""
    for seed in range(20 + 49 * block, 20 + 49 * (block + 1)):
        with jax.enable_x64(seed % 2 == 0):
            check_random_problem(seed)


@pytest.mark.wide
def test_bits_depend_neither_on_chunks_nor_on_resuming():
    given = quad(), ring(4), solve(batch=3)
    whole = diamond.simulate(*given, 16, every=16)
    pieces = diamond.simulate(*given, 16, every=3)
    half = diamond.simulate(*given, 7, every=7)
    resumed = diamond.simulate(*given, 16, every=8, resume=half.snapshot)
    for run in (pieces, resumed):
        np.testing.assert_array_equal(run.last_x, whole.last_x)
        np.testing.assert_array_equal(run.history["gradients"][-1], whole.history["gradients"][-1])


@pytest.mark.wide
@pytest.mark.parametrize("level", ["personal", "common"])
def test_several_devices_make_the_same_steps(level):
    given = quad(noise=0.1, lower_level=level), ring(4), solve(batch=3)
    one = diamond.simulate(*given, 7, every=7)
    two = diamond.simulate(*given, 7, every=7, devices=2)
    np.testing.assert_allclose(two.last_x, one.last_x, rtol=1e-8)
    np.testing.assert_array_equal(two.costs["hvps"], one.costs["hvps"])


@pytest.mark.wide
def test_a_finished_run_makes_no_more_rounds():
    given = quad(noise=0.0), ring(4), solve(batch=4)
    run = diamond.simulate(*given, 500, every=50)
    assert run.rounds < 500 and run.history["round"][-1] == run.rounds
    longer = diamond.simulate(*given, 900, every=50, resume=run.snapshot)
    assert longer.rounds == run.rounds
    np.testing.assert_array_equal(longer.last_x, run.last_x)


def test_better_accuracy_takes_more_steps_and_ends_nearer():
    given = quad(noise=0.3)
    runs = {name: diamond.solve(given, ring(4), accuracy=name) for name in TOLERANCES}
    gaps = [gap(given, run) for run in runs.values()]
    calls = [run.history["gradients"][-1] for run in runs.values()]
    assert gaps == sorted(gaps, reverse=True) and calls == sorted(calls)
    for wrong in ("best", 0.0, 1.5):
        with pytest.raises(ValueError, match=r"accuracy = .*give"):
            diamond.solve(given, ring(4), accuracy=wrong)


@pytest.mark.wide
def test_costs_without_a_lower_level_are_one_gradient_an_evaluation():
    """All agents have 12 rows; the probe of the second round takes a product."""
    given = quad(noise=0.0, lower_level="none")
    run = diamond.simulate(given, ring(4), solve(batch=4), 6, every=1)
    np.testing.assert_array_equal(run.history["gradients"], 12 * np.array([0, 1, 1, 2, 3, 4, 5]))
    np.testing.assert_array_equal(run.history["hvps"], 12 * np.array([0, 0, 1, 1, 1, 1, 1]))
    np.testing.assert_array_equal(run.history["samples"], [0, *[12] * 6])
    assert run.history["jvps"][-1] == 0


@pytest.mark.wide
def test_samples_begin_small_and_end_with_all_rows():
    random = np.random.default_rng(0)
    site = lambda: {"a": random.normal(size=(1000, 3)), "noise": 3 * random.normal(size=1000)}
    loss = lambda y, rows: jnp.mean((rows["a"] @ (y - jnp.arange(1.0, 4)) - rows["noise"]) ** 2)
    upper = lambda x, y, rows: loss(y, rows) + 1e-3 * jnp.sum(x**2)
    lower = lambda x, y, rows: upper(x, y, rows) + jnp.mean(jnp.exp(x) * y**2)
    start = lambda key: (jnp.zeros(3), jnp.zeros(3))
    problem = Problem(upper, lower, start, [site(), site()], [site(), site()])
    run = diamond.solve(problem, diamond.network.path(2), every=1)
    rows = run.history["rows"]
    assert rows[0] == 16 and rows[-1] == 1000
    assert (np.diff(rows) >= 0).all() and run.message.startswith("converged")
    assert run.history["samples"][-1] == 2 * 1000  # each row of both parts counts once


@pytest.mark.parametrize(
    "most, agents, x_size, y_size, is_common, first",
    [
        (5, 4, 3, 3, False, 5),  # all rows
        (40, 4, 3, 3, False, 10),  # at least 8 of an agent
        (40, 4, 3, 10, False, 10),  # and as many as y has numbers
        (40, 4, 3, 11, False, 20),
        (20_000, 4, 3, 1_000, False, 40),  # up to 32
        (20_000, 4, 3, 32, True, 10),  # of all agents together, if y is common
        (1000, 4, 400, 3, False, 125),  # and, together, as many as x has numbers
    ],
)
def test_the_first_sample_determines_x_and_y(most, agents, x_size, y_size, is_common, first):
    sizes = jnp.int32(most), jnp.int32(agents), x_size, y_size
    assert first_rows(*sizes, is_common) == first


def few_rows_mislead(agents=4, rows=256):
    """Ridge regressions with one penalty, whose first rows have the opposite sign."""
    random = np.random.default_rng(3)

    def site():
        a = random.normal(size=(rows, 6))
        sign = np.where(np.arange(rows) < 8, -1, 1)
        return {"a": a, "b": sign * (a @ np.ones(6)) + random.normal(size=rows)}

    fit = lambda y, r: jnp.mean((r["a"] @ y - r["b"]) ** 2)
    lower = lambda x, y, r: fit(y, r) + jnp.sum(jnp.exp(x) * y**2)
    start = lambda key: (jnp.full(1, -2.0), jnp.zeros(6))
    parts = [site() for _ in range(agents)], [site() for _ in range(agents)]
    return Problem(lambda x, y, r: fit(y, r), lower, start, *parts)


@pytest.mark.wide
def test_no_step_is_taken_while_the_gradient_depends_on_the_sample():
    """Samples double before the first step until another doubling changes the gradient by less."""
    run = diamond.solve(few_rows_mislead(), ring(4), every=1)
    rows, accepted, loss = (run.history[name] for name in ("rows", "accepted", "upper_loss"))
    assert rows[0] == 8 and rows[np.flatnonzero(accepted)[0]] >= 32
    assert loss.max() == loss[0] and run.message.startswith("converged")


@pytest.mark.wide
def test_where_it_does_not_apply_steps_are_learned_and_the_reason_is_named():
    given = quad()
    quantized = ring(4).through(diamond.network.channels.quantized(8))
    plain = specialize(solve(), given, ring(4))
    assert isinstance(plain, QuasiNewton)
    assert not isinstance(specialize(solve(), given, quantized), QuasiNewton)
    assert not isinstance(specialize(solve(steps="learned"), given, ring(4)), QuasiNewton)
    bent = Problem(
        given.upper, given.lower, given.init, given.rows["train"], given.rows["valid"], convex=False
    )
    run = diamond.solve(bent, ring(4), rounds=3)
    assert "is not strongly convex" in run.description
    run = diamond.solve(given, quantized, rounds=3)
    assert "because its channels change messages" in run.description


def test_the_message_names_a_lower_level_that_is_not_convex():
    method = specialize(solve(), quad(), ring(4))
    run = diamond.simulate(quad(noise=0.0), ring(4), solve(batch=4), 4, every=4)
    ended = lambda is_met: run.state._replace(
        control=run.state.control._replace(
            reason=jnp.full(4, STUCK),
            has_negative_curvature=jnp.full(4, is_met),
            phase=jnp.full(4, DONE),
        )
    )
    assert run.state.control.has_negative_curvature.max() == 0
    assert "convex" not in method.describe_end(ended(0))
    assert "if g is not convex in y, give convex=False" in method.describe_end(ended(1))


@pytest.mark.wide
def test_a_step_into_a_region_without_numbers_is_refused():
    """f is not a number for x below 0.5, beyond the minimizer of its linear model."""
    rows = [{"a": np.ones(8)}]
    root = lambda x: jnp.sum(jnp.sqrt(x - 0.5) + 0.02 / (x - 0.5))
    upper = lambda x, y, r: jnp.mean(r["a"]) * root(x) + jnp.sum(y**2)
    lower = lambda x, y, r: jnp.mean(r["a"]) * jnp.sum((y - 0.01 * x) ** 2)
    problem = Problem(upper, lower, lambda key: (jnp.full(2, 3.0), jnp.zeros(2)), rows, rows)
    run = diamond.solve(problem, every=1)
    x = np.linspace(0.501, 1, 100_000)
    least = 2 * np.min(np.sqrt(x - 0.5) + 0.02 / (x - 0.5) + (0.01 * x) ** 2)
    assert np.isfinite(run.history["upper_loss"]).all()
    assert run.history["upper_loss"][-1] == pytest.approx(least, rel=1e-4)
