"""Steps that choose themselves: against curvatures in closed form, under scaling, and counted."""

import warnings
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import losses_only, quickly, unmeasured
from helpers import ESTIMATORS, build, flat, logistic, quad, ring, same_bits
from survival import BATCH, survival

import diamond
from diamond.numbers.open_numbers import Setting, agent_numbers, resolve
from diamond.numbers.schedule import constant, paper
from diamond.problem import Problem
from diamond.runtimes.many import many

QUAD = quad(noise=0.0)
NOISY = quad(noise=20.0).problem
SUM = diamond.hypergradient.neumann_sum(4)


@pytest.fixture(autouse=True)
def compiled_quickly():
    with quickly():
        yield


def found(problem, algorithm, network=None, batch=12):
    return resolve(algorithm, Setting(problem, network, batch, 0))


def curvatures(q):
    """The norm of the Hessian of every agent's l_i, column by column."""
    at = lambda x: q.surrogate(x, q.lower_solution(x))
    zero = at(np.zeros(q.c.shape[1]))
    columns = np.stack([at(e) - zero for e in np.eye(q.c.shape[1])], -1)
    return np.linalg.norm(columns, 2, axis=(1, 2))


def test_curvatures_of_both_levels_in_closed_form():
    numbers = found(QUAD.problem, diamond.diamond(batch=12)).numbers
    assert numbers["mu"] == pytest.approx(0.5, rel=1e-6)
    assert numbers["curvature"] == pytest.approx(1.5, rel=1e-2)
    assert numbers["beta"] == pytest.approx(1 / (1.5 * numbers["curvature"]))
    assert numbers["lipschitz"] == pytest.approx(3 * numbers["curvature"])
    # (1 - 0.5 / 4.5)^K < 0.05 from K = 26 on
    assert numbers["terms"] == 32


@pytest.mark.quick
def test_alpha_is_one_over_the_curvature_of_the_upper_level_without_noise():
    exact = dict(hypergradient=ESTIMATORS["exact"], batch=12)
    late = found(QUAD.problem, diamond.diamond(**exact)).numbers
    early = found(QUAD.problem, diamond.diamond(order="paper", **exact)).numbers
    most = 1.5 * 2 * (1 / (1.5 * 3)) ** 0.5 / curvatures(QUAD).mean()  # of a condition of 3
    assert late["eta"] == 1  # nothing to average away
    assert most <= late["alpha"] * 1.001  # power iteration comes from below
    assert late["alpha"] < 1.4 * most
    assert early["alpha"] == pytest.approx(late["alpha"] / 2)


def test_steps_of_extra_shrink_with_the_smallest_eigenvalue_as_its_limit_does():
    """(5 + 3 l) / (4 L): M of K_{2,2} by Metropolis has the eigenvalue -1/3, Laplacians none."""
    q = quad(lower_level="none", noise=0.0)
    method = diamond.extra(batch=12)
    made = [ring(4), ring(4, "metropolis")]
    assert made[0].least > -1e-9 and made[1].least == pytest.approx(-1 / 3)
    usual, shorter = (found(q.problem, method, net).numbers["alpha"] for net in made)
    assert shorter == pytest.approx(usual * (5 + 3 * made[1].least) / 5)
    assert shorter < (5 + 3 * made[1].least) / 4 / max(np.linalg.eigvalsh(q.P).ravel())


@cache
def apart(spread=10.0, agents=3):
    """Agents whose lower levels differ in curvature, the last `spread` times the first."""
    rows = [{"s": np.full(12, spread ** (i / (agents - 1)))} for i in range(agents)]
    lower = lambda x, y, r: jnp.mean(0.5 * r["s"] * jnp.sum((y - x) ** 2))
    upper = lambda x, y, r: 0.5 * jnp.sum((y - 1) ** 2) + 0.0 * jnp.mean(r["s"])
    return Problem(upper, lower, lambda key: (jnp.zeros(2), jnp.zeros(2)), rows, rows)


def test_every_agent_has_its_own_lower_step_and_chain(monkeypatch):
    unmeasured(monkeypatch)
    algorithm = diamond.diamond(alpha=0.05, batch=12)
    resolved = found(apart(), algorithm)
    bends = np.array([1.0, 10**0.5, 10.0])
    for i, bend in enumerate(bends):
        mine = agent_numbers(resolved.algorithm, i)
        assert float(mine.numbers(0)["beta"]) == pytest.approx(1 / (1.5 * bend), rel=1e-4)
        assert float(mine.hypergradient.solve.lipschitz) == pytest.approx(3 * bend, rel=1e-4)
    numbers = resolved.numbers
    assert numbers["beta"] == pytest.approx(1 / 15, rel=1e-4)  # the smallest, and the largest
    assert numbers["most_beta"] == pytest.approx(1 / 1.5, rel=1e-4)
    assert numbers["condition"] == pytest.approx(1, rel=1e-4)  # of each agent alone
    common = diamond.diamond(alpha=0.05, beta=1 / 15, batch=12)
    runs = [
        diamond.simulate(apart(), ring(3), given, 20, every=20) for given in (algorithm, common)
    ]
    own_steps, one_step = (np.sum((run.y - run.x) ** 2) for run in runs)  # y* = x
    assert own_steps < one_step / 10  # who is not stiff need not wait


def test_what_x_has_outrun_is_named_and_not_steps_that_nobody_gave(monkeypatch):
    unmeasured(monkeypatch)
    rows = [{"a": np.ones(12)} for _ in range(3)]
    upper = lambda x, y, r: 0.5 * jnp.sum(y**2) - jnp.sum(x) * jnp.mean(r["a"])
    lower = lambda x, y, r: jnp.mean(0.5 * jnp.exp(x[0]) * r["a"] * jnp.sum((y - 1) ** 2))
    problem = Problem(upper, lower, lambda key: (jnp.zeros(1), jnp.zeros(2)), rows, rows)
    with warnings.catch_warnings(), pytest.raises(diamond.Diverged) as caught:
        warnings.simplefilter("ignore")
        diamond.simulate(problem, ring(3), diamond.dsgd(alpha=4.0, batch=12), 24, every=24)
    said = str(caught.value)
    with pytest.raises(diamond.Diverged, match="beta_0 = 500 exceeds"):  # a beta that was given
        diamond.simulate(problem, ring(3), diamond.dsgd(0.1, 500.0, batch=12), 24, every=24)
    assert "of agent 0 bends" in said and "more than the lipschitz = 3 found before" in said
    assert "on_divergence='shrink'" in said and "divide beta" not in said
    with pytest.warns(RuntimeWarning, match="back to"), pytest.raises(diamond.Diverged) as again:
        wild = diamond.dsgd(alpha=1e9, batch=12)
        diamond.simulate(problem, ring(3), wild, 24, every=24, on_divergence="shrink")
    assert "shrinking all steps did not help" in str(again.value)


def test_a_slow_lower_level_slows_the_upper():
    given = dict(batch=12, hypergradient=ESTIMATORS["exact"])
    alpha = {}
    for condition in (100.0, 400.0):
        q = quad(noise=0.0, mu=1.0, L=condition)
        alpha[condition] = found(q.problem, diamond.diamond(**given)).numbers["alpha"]
        phi = 2 / (1.5 * condition) ** 0.5
        assert alpha[condition] == pytest.approx(1.5 * phi / curvatures(q).max(), rel=0.4)


def test_many_agents_tell_the_largest_curvature_only(monkeypatch):
    monkeypatch.setattr("diamond.auto.step_sizes.MANY", 3)
    exact = dict(hypergradient=ESTIMATORS["exact"], batch=12)
    network = ring(4)
    few = found(QUAD.problem, diamond.diamond(**exact), network)
    assert few.numbers["alpha"] * curvatures(QUAD).max() < 1.4 * 1.5
    monkeypatch.setattr("diamond.auto.step_sizes.MANY", 4)
    every = found(QUAD.problem, diamond.diamond(**exact), network)
    assert every.numbers["alpha"] > few.numbers["alpha"]  # the mean lies below the largest
    assert every.bytes - few.bytes == 2 * 4 * 8 * network.diameter * 2 * 4  # L_l and l of each


def test_noise_makes_steps_and_weights_smaller():
    exact = dict(batch=2, hypergradient=ESTIMATORS["exact"])
    of = lambda problem, make: found(problem, make(**exact), batch=2).numbers
    noisy, calm = (of(p, diamond.gt_sgd) for p in (NOISY, QUAD.problem))
    assert noisy["alpha"] < calm["alpha"] / 2
    momentum = of(NOISY, diamond.diamond)
    assert 0.1 <= momentum["eta"] < 1
    assert noisy["alpha"] < momentum["alpha"] < calm["alpha"]
    whole = found(NOISY, diamond.interact(hypergradient=ESTIMATORS["exact"]), batch=2).numbers
    assert whole["alpha"] == pytest.approx(calm["alpha"], rel=1e-2)  # no noise to fear


def test_two_lags_need_a_slower_upper_level():
    numbers = found(QUAD.problem, diamond.k_free(batch=12)).numbers
    plain = found(QUAD.problem, diamond.gt_sgd(batch=12, hypergradient=ESTIMATORS["exact"]))
    rate = numbers["beta"] * 0.5  # beta mu
    slower = rate / (1.5 * 2 * rate**0.5)
    assert numbers["alpha"] == pytest.approx(slower * plain.numbers["alpha"], rel=0.05)


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


def test_the_scale_of_the_losses_changes_nothing(monkeypatch, f=1e3, g=1e-3):
    unmeasured(monkeypatch)
    algorithm = diamond.diamond(batch=4, hypergradient=SUM)
    plain, other = (
        diamond.simulate(problem, ring(3), algorithm, 30, every=30)
        for problem in (scaled(1.0, 1.0), scaled(f, g))
    )
    assert other.resolved["alpha"] == pytest.approx(plain.resolved["alpha"] / f, rel=1e-4)
    assert other.resolved["beta"] == pytest.approx(plain.resolved["beta"] / g, rel=1e-4)
    np.testing.assert_allclose(flat(other.x), flat(plain.x), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(flat(other.y), flat(plain.y), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["diamond", "dsgd", "interact", "k_free", "svr_interact"])
def test_algorithms_run_without_a_step_size(name):
    given = build(name, batch=4, hypergradient=SUM)
    run = diamond.simulate(logistic(), ring(3), given, 120, every=40)
    loss = run.history["upper_loss"]
    assert loss[-1] < loss[0] and np.isfinite(run.history["metric"]).all()
    assert run.resolved["alpha"] > 0 and run.resolved["beta"] > 0


def test_what_it_costs_is_counted():
    network = diamond.network.path(3)  # of diameter 2
    given = diamond.gt_sgd(batch=4, hypergradient=ESTIMATORS["exact"])
    run = diamond.simulate(logistic(), network, given, 26, every=26)
    once = resolve(given, Setting(logistic(), network, 4, 0))
    agreed = 1 + 3 + 6  # L_g / mu; L_l, r and sigma_L, and L_l and l of each of three
    assert once.rounds == 2 * 2 and once.bytes == agreed * 2 * 2 * 2 * 8
    assert run.history["bytes"][0] == once.bytes
    x = 4 * 8  # bytes of x
    assert run.history["bytes"][-1] == 2 * once.bytes + 26 * 2 * 2 * 2 * x  # found anew at 25
    assert run.history["samples"][0] == np.mean(once.cost.samples) > 0
    assert run.messages == (26 + 2 * once.rounds) * 4


def test_numbers_are_found_anew_at_the_same_rounds_whatever_the_chunks():
    given = diamond.gt_sgd(batch=4, hypergradient=SUM)
    runs = [diamond.simulate(logistic(), ring(3), given, 110, every=e) for e in (110, 17)]
    assert same_bits(runs[0].state, runs[1].state)
    assert runs[0].resolved == runs[1].resolved
    start = resolve(given, Setting(logistic(), ring(3), 4, 0)).numbers
    assert runs[0].resolved["curvature"] != start["curvature"]  # found where the agents are
    assert runs[0].resolved["alpha"] <= start["alpha"]


def test_side_by_side_they_find_the_same_numbers(monkeypatch):
    losses_only(monkeypatch)
    monkeypatch.setattr("diamond.runtimes.many.LANES", 2)
    algorithm = diamond.diamond(batch=4, hypergradient=SUM)
    (batched,) = many(logistic(), ring(3), [(algorithm, 3)], 30, 30, batched=True)
    alone = diamond.simulate(logistic(), ring(3), algorithm, 30, seed=3, every=30)
    for name in ("upper_loss", "metric", "samples", "bytes", "hvps"):
        np.testing.assert_allclose(batched.history[name], alone.history[name], rtol=1e-6)


def test_steps_as_a_mapping_and_by_name():
    given = diamond.diamond(steps=paper(0.3, 2.0, 5.0, 7.0))
    assert given.x.step == paper(0.3, 2.0, 5.0, 7.0)["alpha"]
    assert given.x.move.order == "paper"  # alpha was given
    assert diamond.diamond().x.move.order == "atc"
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
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        network = ring(4)
        run = diamond.simulate(
            quad().problem, network, wild, rounds, every=every, on_divergence="shrink"
        )
    return run, [str(w.message) for w in said]


def test_a_run_that_diverges_may_go_back_and_shrink_its_steps(monkeypatch):
    unmeasured(monkeypatch)
    run, said = shrinking(220, 50)
    other, _ = shrinking(220, 220)
    assert np.isfinite(flat(run.x)).all() and run.rounds == 220
    assert run.resolved["shrunk"] in [0.25**k for k in range(1, 9)]
    assert np.abs(flat(run.x)).max() < 1e3  # not only finite
    assert any("back to round 0 with steps 0.25 times the first" in line for line in said)
    assert same_bits(run.state, other.state)  # whatever the chunks
    np.testing.assert_array_equal(run.history["round"], [0, 50, 100, 150, 200, 220])
    made = 220 + run.resolved["lost"]
    assert run.history["bytes"][-1] == made * 2 * 4 * 2 * 3 * 8  # the rounds lost were sent too
    assert run.history["samples"][-1] == made * 4 * 4  # xi, zeta, zeta_0 and that of the Hessian
    with pytest.raises(ValueError, match="on_divergence = 'pray'; there are 'stop' and 'shrink'"):
        diamond.simulate(quad().problem, ring(4), diamond.dsgd(0.1), 1, on_divergence="pray")


def stiffening(upper):
    """x grows, and the lower level bends by exp(x)."""
    rows = [{"a": np.ones(12)} for _ in range(3)]
    f = lambda x, y, r: jnp.mean(r["a"]) * (upper(x[0]) + 0.5 * jnp.sum((y - 1) ** 2))
    g = lambda x, y, r: 0.5 * jnp.mean(r["a"]) * jnp.exp(x[0]) * jnp.sum((y - 1) ** 2)
    return Problem(f, g, lambda key: (jnp.zeros(1), jnp.zeros(2)), rows, rows)


def test_steps_that_choose_themselves_shrink_unless_told_to_stop():
    problem, auto = stiffening(lambda x: 0.025 * (x - 5) ** 2), diamond.dsgd(batch=12)
    with pytest.raises(diamond.Diverged, match=r"round 18: .* g_yy of agent 0 bends"):
        diamond.simulate(problem, ring(3), auto, 300, every=100, on_divergence="stop")
    with pytest.warns(RuntimeWarning, match="back to round 0") as said:
        run = diamond.simulate(problem, ring(3), auto, 300, every=100)
    assert "lost in round 18; back to round 0 with steps 0.25 times" in str(said[0].message)
    assert run.resolved["shrunk"] < 1 and run.rounds == 300
    assert 0 < float(run.x[0][0]) < 5 and (np.diff(run.history["upper_loss"]) < 0).all()


def test_what_was_found_where_a_run_was_lost_is_forgotten_but_its_cost_is_not():
    problem, algorithm = logistic(), diamond.diamond(batch=4, hypergradient=SUM)
    setting = Setting(problem, None, 4, 0)
    first = resolve(algorithm, setting)
    x, y = jax.tree.map(lambda a: np.stack([a] * 3), problem.start(0))
    far = jax.tree.map(lambda a: a + 1e4, x)
    lost = setting.at(far, y)  # g has exp(x)
    poisoned = resolve(algorithm, lost)
    assert np.isnan(poisoned.numbers["beta"])
    back = lost.at(x, y, forget=True)
    anew = resolve(algorithm, back)
    assert anew.numbers == pytest.approx(first.numbers)
    assert np.max(anew.cost.hvps) > np.max(poisoned.cost.hvps)
    assert back.before("alpha", 7.0) == 7.0 and setting.at(x, y).before("alpha", 7.0) != 7.0


def test_a_probe_that_leads_to_infinity_makes_steps_smaller_not_nan():
    far = found(stiffening(lambda x: jnp.sqrt(1 + (x - 8) ** 2)), diamond.dsgd(batch=12), ring(3))
    assert 0 < far.numbers["alpha"] < np.inf  # it went 500 along x, and exp(500) is infinite


def test_it_gives_up_in_the_end(monkeypatch):
    unmeasured(monkeypatch)
    hopeless = diamond.gt_sgd(0.2, 1e9, batch=4, hypergradient=ESTIMATORS["exact"])
    with pytest.warns(RuntimeWarning, match="back to round"), pytest.raises(diamond.Diverged):
        diamond.simulate(quad().problem, ring(4), hopeless, 300, on_divergence="shrink")


@pytest.mark.quick
def test_the_schedules_shrink_as_written():
    resolved = found(QUAD.problem, diamond.diamond(batch=12))
    algorithm = resolved.algorithm
    numbers = {t: agent_numbers(algorithm, 0).numbers(t) for t in (0, 200, 1400)}
    alpha, beta, eta = ([float(numbers[t][n]) for t in numbers] for n in ("alpha", "beta", "eta"))
    for step, first in ((alpha, 25 * alpha[0]), (beta, beta[0])):
        np.testing.assert_allclose(step[1:], [first * 2 ** (-1 / 3), first * 0.5], rtol=1e-6)
    assert alpha[0] == pytest.approx(resolved.numbers["alpha"] / 25)  # it rises at first
    assert eta[0] == 1  # there is no past in round 0
    assert eta[1] == pytest.approx(resolved.numbers["eta"] * 21 ** (-2 / 3))


def test_an_explosion_one_step_away_does_not_stop_all_agents(float32):
    numbers = found(survival(16), diamond.gt_sgd(batch=BATCH), ring(5), BATCH).numbers
    assert numbers["alpha"] > 0.1
