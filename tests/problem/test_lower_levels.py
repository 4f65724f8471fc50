"""Lower levels: personal, common, none; what is measured of each, and x with a prox."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_measures
from helpers import final_progress, flat, logistic, quad, ring, same_bits

import diamond
from diamond import prox
from diamond.gallery import quadratic
from diamond.metrics.exact_measures import measure

AGENTS = 4


def found(problem, x, y, z=None):
    objectives, rows = problem.objectives(), problem.stack(problem.measured_part)
    together, own = measure(objectives, rows, problem.metrics, x, y, z)
    return {name: float(value) for name, value in together.items()}, own


def points(size, seed=0):
    return np.random.default_rng(seed).normal(size=(AGENTS, size))


def off(a):
    return np.sum((a - a.mean(0)) ** 2)


@pytest.mark.wide
def test_a_common_lower_level_is_measured_against_the_common_solution():
    q = quad(lower_level="common", noise=0.7, rows=(12, 5, 9, 3))
    x, y, z = points(3), points(4, 1), points(4, 2)
    seen, own = found(q, x, y, z)
    mean = x.mean(0)
    best = q.lower_solution(mean)
    np.testing.assert_allclose(best, np.tile(best[0], (AGENTS, 1)), atol=1e-14)  # one y for all
    assert seen["stationarity"] == pytest.approx(np.sum(q.gradient(mean) ** 2), rel=1e-8)
    assert seen["lower_error"] == pytest.approx(np.sum((best - y) ** 2), rel=1e-9)
    assert seen["consensus"] == pytest.approx(off(x)) and seen["y_consensus"] == pytest.approx(
        off(y)
    )
    assert seen["z_consensus"] == pytest.approx(off(z))
    terms = seen["stationarity"] + seen["consensus"] + seen["lower_error"]
    assert seen["metric"] == pytest.approx(terms)
    step = 1e-5 * np.eye(3)
    value = lambda x: found(q, np.tile(x, (AGENTS, 1)), y)[0]["upper_loss"]
    slope = [(value(mean + e) - value(mean - e)) / 2e-5 for e in step]
    np.testing.assert_allclose(slope, q.gradient(mean), rtol=1e-6)
    assert len(own["lower_error"]) == AGENTS


@pytest.mark.wide
def test_common_and_personal_differ_unless_agents_are_alike():
    x, y = points(3), points(4, 1)
    seen = [found(quad(lower_level=kind), x, y)[0] for kind in ("personal", "common")]
    assert seen[0]["stationarity"] != pytest.approx(seen[1]["stationarity"], rel=0.1)
    one = quad(agents=1)
    rows = {part: [one.rows[part][0]] * AGENTS for part in ("train", "valid")}
    given = one.upper, one.lower, one.init
    x = np.tile(x[:1], (AGENTS, 1))
    alike = [
        found(diamond.Problem(*given, **rows, lower_level=kind), x, y)[0]
        for kind in ("personal", "common")
    ]
    for name in ("stationarity", "lower_error", "upper_loss", "metric"):
        assert alike[0][name] == pytest.approx(alike[1][name], rel=1e-9)


def test_without_a_lower_level_only_x_is_measured():
    q = quad(lower_level="none", noise=0.7, rows=(12, 5, 9, 3))
    x = points(3)
    seen, _ = found(q, x, None)
    assert seen["stationarity"] == pytest.approx(np.sum(q.gradient(x.mean(0)) ** 2), rel=1e-10)
    assert seen["lower_error"] == 0 and seen["metric"] == pytest.approx(
        seen["stationarity"] + off(x)
    )
    mean = x.mean(0)
    loss = np.mean([0.5 * mean @ P @ mean + c @ mean for P, c in zip(q.P, q.c)])
    assert seen["upper_loss"] == pytest.approx(loss)


@pytest.mark.wide
@pytest.mark.parametrize("lower_level", ["personal", "common", "none"])
def test_the_losses_of_the_quadratic_pass_the_checks(lower_level):
    made = quadratic(agents=2, upper=2, lower=2, rows=6, lower_level=lower_level)
    assert made.lower_level == lower_level


@pytest.mark.wide
def test_a_problem_without_a_lower_level_is_of_x_alone():
    rows = [{"a": np.ones((3, 2)) * i} for i in (1, 2)]
    loss = lambda x, rows: jnp.mean((rows["a"] @ x - 1) ** 2)
    problem = diamond.Problem(loss, None, lambda key: jnp.zeros(2), rows, metrics={"same": loss})
    run = diamond.simulate(problem, diamond.network.path(2), diamond.dsgd(0.01, batch=1), 3)
    assert run.y is None and run.history["same"][0] == 1
    assert run.history["samples"].tolist()[-1] == 3 and run.history["hvps"][-1] == 0
    held = diamond.Problem(loss, None, lambda key: jnp.zeros(2), rows, valid=[r for r in rows])
    assert held.measured_part == "test"


@pytest.mark.parametrize(
    "given, message",
    [
        (dict(lower_level="shared"), "lower_level = 'shared'; there are 'personal' and 'common'"),
        (dict(valid=None), "valid is missing: the upper loss averages over its rows"),
    ],
)
def test_what_is_no_lower_level_is_refused(given, message):
    one = quad()
    parts = {part: [one.rows[part][i] for i in range(4)] for part in ("train", "valid")}
    with pytest.raises((ValueError, TypeError), match=message):
        diamond.Problem(one.upper, one.lower, one.init, **parts | given)


PROXES = {
    "box": prox.box(-0.3, 0.4),
    "ball": prox.ball(0.7),
    "simplex": prox.simplex(1.5),
    "l1": prox.l1(0.5),
    "l2": prox.l2(0.5),
}


@pytest.mark.wide(keep=["ball", "box", "l2", "simplex"])
@pytest.mark.parametrize("name", PROXES)
def test_a_prox_is_the_minimizer_that_it_stands_for(name):
    """Against many random points of the set: none is better."""
    random, a = np.random.default_rng(0), 0.8
    one = PROXES[name]
    worth = lambda x, v: one.value(x) + jnp.sum((x - v) ** 2) / (2 * a)

    @jax.jit
    def judged(v, moves):
        best = one(v, a)
        others = jax.vmap(lambda move: worth(one(best + move, a), v))(moves)
        return best, worth(best, v), others

    for _ in range(20):
        v = random.normal(size=5)
        moves = np.repeat([0.01, 0.1, 1], 20)[:, None] * random.normal(size=(60, 5))
        best, least, others = judged(v, moves)
        assert least <= np.min(others) + 1e-12
    np.testing.assert_allclose(one(one(v, a), 0.0), one(v, a), atol=1e-12)
    if name == "simplex":
        assert np.sum(best) == pytest.approx(1.5) and np.min(best) >= 0


@pytest.mark.wide
def test_prometheus_reaches_the_regularized_solution_and_its_measure_vanishes_there():
    q = quad(noise=0.0, rows=4)
    rows = {part: [q.rows[part][i] for i in range(4)] for part in ("train", "valid")}
    one = prox.l1(0.6)
    problem = diamond.Problem(q.upper, q.lower, q.init, **rows, prox=one)
    x = np.zeros(3)
    for _ in range(4000):  # proximal gradient steps on the closed form
        v = x - 0.1 * q.gradient(x)
        x = np.sign(v) * np.maximum(np.abs(v) - 0.1 * 0.6, 0)
    assert np.sum(x == 0) >= 1 and np.any(x)  # some, not all, are cut off
    exact = diamond.hypergradient.exact()
    for relax in (None, 0.5):
        method = diamond.prometheus(0.1, 0.4, relax, batch=2, period=3, hypergradient=exact)
        state = final_progress(problem, ring(4), method, 3000).state
        np.testing.assert_allclose(state.x, np.tile(x, (4, 1)), atol=1e-7)
    seen, _ = found(problem, np.tile(x, (4, 1)), state.y)
    assert seen["stationarity"] < 1e-14
    losses = map(q.upper, [x] * 4, q.lower_solution(x), rows["valid"])
    assert seen["upper_loss"] == pytest.approx(np.mean([*losses]) + 0.6 * np.abs(x).sum())
    with pytest.raises(ValueError, match=r"x of this problem has a prox, which extra cannot take"):
        diamond.simulate(problem, ring(4), diamond.extra(0.1, 0.1), 1)
    with pytest.raises(ValueError, match="tracking in the order of the paper cannot take"):
        diamond.simulate(problem, ring(4), diamond.gt_sgd(0.1, 0.1, order="paper"), 1)


@pytest.mark.wide
def test_a_constraint_holds_in_every_round():
    known = logistic()
    given = known.upper, known.lower, known.init
    rows = {part: [known.rows[part][i] for i in range(3)] for part in ("train", "valid")}
    problem = diamond.Problem(*given, **rows, prox=prox.box(-1.0, 0.01))
    chain = diamond.hypergradient.neumann(3, 3.0)
    algorithm = diamond.diamond(2.0, 0.2, 0.5, 0.5, 2, chain, order="atc")
    seen = np.stack(
        [flat(final_progress(problem, ring(3), algorithm, rounds).state.x) for rounds in (3, 4, 5)]
    )
    assert seen.min() == -1 and seen.max() == 0.01  # both ends are met, neither is crossed


@pytest.mark.wide
@pytest.mark.parametrize("lower_level", ["common", "none"])
def test_devices_and_lanes_give_what_one_device_gives(lower_level):
    problem = quad(agents=5, lower_level=lower_level)
    method = {"common": diamond.sparkle(0.05, 0.2, 0.2, 0.5, batch=3), "none": diamond.extra(0.1)}
    given = problem, ring(5), method[lower_level], 6
    plain = diamond.simulate(*given, every=3)
    runs = [diamond.simulate(*given, every=3, devices=n) for n in (1, 2)]
    assert same_bits(jax.tree.map(np.asarray, runs[0].x), jax.tree.map(np.asarray, runs[1].x))
    both = [{k: v for k, v in r.history.items() if k != "seconds"} for r in runs]
    assert all(np.array_equal(both[0][k], both[1][k]) for k in both[0])
    for name, values in plain.history.items():
        if name != "seconds":
            np.testing.assert_allclose(both[0][name], values, rtol=1e-9, atol=1e-12)
    from diamond.engine.many_runs import simulate_many

    lanes = simulate_many(problem, ring(5), [(given[2], 0)] * 2, 6, 3, batched=True)
    for name in ("metric", "upper_loss", "bytes", "samples"):
        np.testing.assert_allclose(lanes[1].history[name], plain.history[name], rtol=1e-9)


@pytest.mark.wide
@pytest.mark.parametrize(
    "method, lower_level",
    [
        (diamond.ma_dsbo(0.02, 0.2, 0.2, 0.5, inner=2, batch=3), "common"),
        (diamond.saba(0.02, 0.2, 0.2, batch=3), "personal"),
        (diamond.exact_diffusion(0.1, batch=3), "none"),
    ],
)
def test_a_run_that_goes_on_ends_in_the_same_bits(method, lower_level, monkeypatch):
    skip_measures(monkeypatch)
    problem, saved = quad(lower_level=lower_level), []
    given = problem, ring(4), method, 8
    keep = lambda s: saved.append(s._replace(entries=list(s.entries), per_agent=list(s.per_agent)))
    whole = diamond.simulate(*given, every=3, on_progress=keep)
    again = diamond.simulate(*given, every=3, resume=saved[1])
    assert same_bits(whole.state, again.state)
    assert whole.history["samples"].tolist() == again.history["samples"].tolist()


def test_a_file_whose_algorithm_does_not_solve_its_problem_is_refused_as_a_mistake(tmp_path):
    from typer.testing import CliRunner

    from diamond import cli

    file = tmp_path / "common.toml"
    file.write_text(
        """
        rounds = 2
        problem = {kind = "quadratic", agents = 3, lower_level = "common"}
        network = "ring:3"
        algorithm = ["sparkle", "diamond"]
        """
    )
    found = CliRunner().invoke(cli.app, ["compare", str(file)])
    assert found.exit_code == 2
    assert "algorithm[1]: diamond: the problem has a common lower level" in found.output
    assert "those that do: adasdbo" in found.output
