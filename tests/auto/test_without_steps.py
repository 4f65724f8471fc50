"""Runs whose user gave no step size: progress, scales, chunks, lanes, rollbacks."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import measure_losses_only, skip_measures, without_optimizations
from helpers import ESTIMATORS, build, flat, logistic, quad, ring, same_bits
from ill_conditioned_problems import first_and_lowest, grouped, shifted

import diamond
from diamond.algorithms.solve import solve
from diamond.engine.many_runs import simulate_many
from diamond.problem import Problem
from diamond.schedules.step_schedules import constant, paper

SUM = diamond.hypergradient.neumann_sum(4)


@pytest.fixture(autouse=True)
def compiled_quickly():
    with without_optimizations():
        yield


@pytest.mark.wide
@pytest.mark.parametrize("name", ["diamond", "dsgd", "interact", "k_free", "svr_interact"])
def test_methods_run_without_a_step_size(name):
    given = build(name, batch=4, hypergradient=SUM)
    run = diamond.simulate(logistic(), ring(3), given, 120, every=40)
    loss = run.history["upper_loss"]
    assert loss[-1] < loss[0] and np.isfinite(run.history["metric"]).all()
    assert run.history["alpha"][-1] > 0 and run.history["beta"][-1] > 0


@pytest.mark.wide
@pytest.mark.parametrize("name", ["dsgd", "m_sgd", "gt_sgd"])
def test_methods_with_and_without_tracking_learn_steps_on_a_changing_balanced_network(name):
    """One neighbor a round: what each method communicates is read from the method itself."""
    given = quad(noise=0.0)
    network = diamond.network.one_peer(4)
    assert network.kind == "balanced"
    run = diamond.simulate(given, network, build(name, batch=12), 200, every=100)
    loss = run.history["upper_loss"]
    assert loss[-1] < loss[0] and "shrunk" not in run.resolved
    assert run.history["stationarity"][-1] < 0.05 * run.history["stationarity"][0]


def scaled_upper(x, y, rows):
    return jnp.mean(rows["scale"]) * logistic().upper(x, y, rows["of"])


def scaled_lower(x, y, rows):
    return jnp.mean(rows["scale"]) * logistic().lower(x, y, rows["of"])


def scaled(f, g):
    """The logistic problem with its losses times f and g, which are rows: one program for all."""
    base = logistic()
    times = lambda part, c: [{"of": rows, "scale": np.full(10, c)} for rows in base.rows[part]]
    parts = times("train", g), times("valid", f)
    return Problem(scaled_upper, scaled_lower, base.init, *parts, shuffle=False)


@pytest.mark.wide
def test_the_scale_of_the_losses_changes_nothing(monkeypatch, f=1e3, g=1e-3):
    skip_measures(monkeypatch)
    algorithm = diamond.diamond(batch=4, hypergradient=SUM)
    plain, other = (
        diamond.simulate(problem, ring(3), algorithm, 30, every=30)
        for problem in (scaled(1.0, 1.0), scaled(f, g))
    )
    for name, scale in (("alpha", f), ("beta", g)):
        expected = plain.history[name][-1] / scale
        assert other.history[name][-1] == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(flat(other.x), flat(plain.x), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(flat(other.y), flat(plain.y), rtol=1e-4, atol=1e-6)


@pytest.mark.wide
def test_the_bits_are_the_same_whatever_the_chunks():
    given = diamond.gt_sgd(batch=4, hypergradient=SUM)
    runs = [diamond.simulate(logistic(), ring(3), given, 110, every=e) for e in (110, 17)]
    assert same_bits(runs[0].state, runs[1].state)
    assert runs[0].resolved == runs[1].resolved


@pytest.mark.wide
def test_side_by_side_runs_learn_the_same_numbers(monkeypatch):
    measure_losses_only(monkeypatch)
    monkeypatch.setattr("diamond.engine.many_runs.LANES", 2)
    algorithm = diamond.diamond(batch=4, hypergradient=SUM)
    (batched,) = simulate_many(logistic(), ring(3), [(algorithm, 3)], 30, 30, batched=True)
    alone = diamond.simulate(logistic(), ring(3), algorithm, 30, seed=3, every=30)
    for name in ("upper_loss", "metric", "samples", "bytes", "hvps", "alpha", "beta"):
        np.testing.assert_allclose(batched.history[name], alone.history[name], rtol=1e-6)


def apart(spread=10.0, agents=3):
    """Agents whose lower levels differ in curvature, the last `spread` times the first."""
    rows = [{"s": np.full(12, spread ** (i / (agents - 1)))} for i in range(agents)]
    lower = lambda x, y, r: jnp.mean(0.5 * r["s"] * jnp.sum((y - x) ** 2))
    upper = lambda x, y, r: 0.5 * jnp.sum((y - 1) ** 2) + 0.0 * jnp.mean(r["s"])
    return Problem(upper, lower, lambda key: (jnp.zeros(2), jnp.zeros(2)), rows, rows)


@pytest.mark.wide
def test_every_agent_has_its_own_lower_step(monkeypatch):
    skip_measures(monkeypatch)
    problem = apart()
    run, common = (
        diamond.simulate(problem, ring(3), diamond.diamond(batch=12, **given), 20, every=20)
        for given in (dict(alpha=0.05), dict(alpha=0.05, beta=1 / 15))
    )
    largest = np.array([1.0, 10**0.5, 10.0])
    np.testing.assert_allclose(run.state.curvature.largest, largest, rtol=1e-4)
    own_steps, one_step = (np.sum((r.last_y - r.last_x) ** 2) for r in (run, common))  # y* = x
    assert own_steps < one_step / 10  # who is not stiff need not wait


@pytest.mark.wide
@pytest.mark.parametrize(
    "make, network", [(shifted, diamond.network.path(5)), (grouped, diamond.network.complete(4))]
)
def test_a_badly_conditioned_ridge_comes_near_its_lowest_and_never_above_its_start(make, network):
    problem = make()
    first, lowest = first_and_lowest(problem)
    solver = solve(batch=64)
    run = diamond.simulate(problem, network, solver, 300, every=50)
    assert run.history["upper_loss"][0] == pytest.approx(first, rel=1e-4)
    result = (run.history["upper_loss"] - lowest) / (first - lowest)
    assert (result[1:] < 0.5).all() and result[-1] < 0.02


def test_steps_as_a_mapping_and_by_name():
    given = diamond.diamond(steps=paper(0.3, 2.0, 5.0, 7.0))
    assert given.x.step == paper(0.3, 2.0, 5.0, 7.0)["alpha"]
    assert given.x.communication.order == "paper"  # alpha was given
    assert diamond.diamond().x.communication.order == "atc"
    assert diamond.gt_sgd(alpha=0.1).x.step == constant(0.1)
    both = diamond.gt_sgd(beta=0.2, steps={"alpha": 0.1})
    assert (both.x.step, both.y.step) == (constant(0.1), constant(0.2))
    assert diamond.k_free(alpha=0.1, beta=0.2).z.step == constant(0.2)
    with pytest.raises(ValueError, match="steps has eta, gamma, which this algorithm does not"):
        diamond.gt_sgd(steps=paper(0.3, 2.0, 5.0, 7.0))
    with pytest.raises(ValueError, match="steps = 'best': give 'auto', or a mapping"):
        diamond.gt_sgd(steps="best")


def shrinking(rounds, every):
    wild = diamond.gt_sgd(0.2, 30.0, batch=4, hypergradient=ESTIMATORS["exact"])
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        run = diamond.simulate(quad(), ring(4), wild, rounds, every=every, on_divergence="shrink")
    return run, [str(w.message) for w in messages]


@pytest.mark.wide
def test_a_run_that_diverges_may_go_back_and_shrink_its_steps(monkeypatch):
    skip_measures(monkeypatch)
    run, messages = shrinking(220, 50)
    other, _ = shrinking(220, 220)
    assert np.isfinite(flat(run.x)).all() and run.rounds == 220
    assert run.resolved["shrunk"] in [0.25**k for k in range(1, 9)]
    assert np.abs(flat(run.x)).max() < 1e3  # not only finite
    assert any("back to round 0 with steps 0.25 times the first" in line for line in messages)
    assert same_bits(run.state, other.state)  # whatever the chunks
    np.testing.assert_array_equal(run.history["round"], [0, 50, 100, 150, 200, 220])
    made = 220 + run.resolved["lost"]
    assert run.history["bytes"][-1] == made * 2 * 4 * 2 * 3 * 8  # the rounds lost were sent too
    assert run.history["samples"][-1] == made * 4 * 4  # xi, zeta, zeta_0 and that of the Hessian
    with pytest.raises(ValueError, match="on_divergence = 'pray'; there are 'stop' and 'shrink'"):
        diamond.simulate(quad(), ring(4), diamond.dsgd(0.1), 1, on_divergence="pray")


@pytest.mark.wide
def test_it_gives_up_in_the_end(monkeypatch):
    skip_measures(monkeypatch)
    hopeless = diamond.gt_sgd(0.2, 1e9, batch=4, hypergradient=ESTIMATORS["exact"])
    with pytest.warns(RuntimeWarning, match="back to round"), pytest.raises(diamond.Diverged):
        diamond.simulate(quad(), ring(4), hopeless, 300, on_divergence="shrink")


def stiffening(upper):
    """x grows, and the lower level bends by exp(x)."""
    rows = [{"a": np.ones(12)} for _ in range(3)]
    f = lambda x, y, r: jnp.mean(r["a"]) * (upper(x[0]) + 0.5 * jnp.sum((y - 1) ** 2))
    g = lambda x, y, r: 0.5 * jnp.mean(r["a"]) * jnp.exp(x[0]) * jnp.sum((y - 1) ** 2)
    return Problem(f, g, lambda key: (jnp.zeros(1), jnp.zeros(2)), rows, rows)


@pytest.mark.wide
@pytest.mark.parametrize(
    "upper", [lambda x: 0.025 * (x - 5) ** 2, lambda x: jnp.sqrt(1 + (x - 8) ** 2)]
)
def test_a_lower_level_that_grows_stiff_on_the_way_is_followed(upper):
    """L grows by a factor of 100 to 3,000 while x moves: beta has to be learned in time."""
    run = diamond.simulate(stiffening(upper), ring(3), diamond.dsgd(batch=12), 300, every=100)
    assert run.rounds == 300 and float(run.x[0][0]) > 2
    assert (np.diff(run.history["upper_loss"]) <= 0).all() and run.history["beta"][-1] > 0
