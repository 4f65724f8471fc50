"""Learned steps of `solve`: where they end, their rule, their local work, their costs."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import LOWER, quad, ring
from units import in_units

import diamond
from diamond.algorithms.parts import local_solution
from diamond.algorithms.solve import solve as any_solve
from diamond.auto import local_solver, step_learning
from diamond.auto.step_learning import StepInputs, initial_scalars, propose_step
from diamond.core.sampling import Sample
from diamond.engine.many_runs import simulate_seeds
from diamond.engine.solve_problem import _plateau
from diamond.problem import Problem

solve = partial(any_solve, steps="learned")


def gap(given, run):
    """The distance to the minimizer, relative to that of the start."""
    expected = given.minimizer()
    return np.linalg.norm(np.asarray(run.x) - expected, axis=1).max() / np.linalg.norm(expected)


@pytest.mark.wide
@pytest.mark.parametrize("level", ["personal", "common", "none"])
def test_it_ends_at_the_minimizer(level):
    given = quad(noise=0.0, lower_level=level)
    run = diamond.simulate(given, ring(4), solve(batch=4), 400, every=400)
    assert gap(given, run) < 0.02
    assert {"alpha"} <= set(run.history) and run.history["alpha"][-1] > 0
    assert (level == "none") == ("beta" not in run.history)


@pytest.mark.wide
@pytest.mark.parametrize(
    "network",
    [
        diamond.network.one_way_ring(4),
        diamond.network.one_peer(4),
        ring(4).through(diamond.network.channels.drops(0.2)),
    ],
    ids=["one way", "changing", "lossy"],
)
def test_it_is_right_on_every_kind_of_network(network):
    given = quad(noise=0.0)
    run = diamond.simulate(given, network, solve(batch=4), 400, every=400)
    assert gap(given, run) < 0.05


@pytest.mark.wide
def test_trackers_add_up_to_directions():
    run = diamond.simulate(quad(), ring(4), solve(batch=3), 7, every=7)
    np.testing.assert_allclose(run.state.u.sum(0), run.state.p.sum(0), atol=1e-12)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("x_scale", "y_scale", "value"),
    [(1e6, 1.0, 1.0), (1.0, 1e-6, 1.0), (1.0, 1.0, 1e6), (1e-6,) * 3],
)
def test_units_do_not_matter(x_scale, y_scale, value):
    problems = in_units(quad()), in_units(quad(), x_scale, y_scale, value)
    runs = [diamond.simulate(p, ring(4), solve(batch=3), 30, every=30) for p in problems]
    np.testing.assert_allclose(np.asarray(runs[1].x) / x_scale, runs[0].x, rtol=1e-6, atol=1e-9)
    assert [list(r.costs["gradients"]) for r in runs] == [list(runs[0].costs["gradients"])] * 2


def stepped(trackers, first_length=0.1):
    """Scalars after a step along each of these trackers in one dimension."""
    x, before, scalars = 0.0, jnp.zeros(1), initial_scalars(jnp.zeros(1))
    for t, u in enumerate(trackers):
        tracker = jnp.array([float(u)])
        at = jnp.array([x])
        trusted = first_length if t == 0 else 1e9
        inputs = StepInputs(at, jnp.zeros(1), at, tracker, before, trusted, t, t == 0, 0.0)
        scalars = propose_step(scalars, inputs)
        x, before = x - float(scalars.alpha) * u, tracker
    return x, scalars


def test_steps_double_while_trackers_agree():
    x, scalars = stepped([5.0, 5.0, 5.0])
    assert x == pytest.approx(-0.1 * (1 + 2 + 4)) and scalars.ramping == 1


def test_after_the_ramp_steps_are_distance_over_gradients():
    """The tracker turns at the fourth: a sum that begins with RESTART of them, then grows."""
    _, turned = stepped([5.0, 5.0, 5.0, -5.0])
    expected = 0.7 * 5.0 / np.sqrt(step_learning.RESTART * 25.0)
    assert turned.ramping == 0
    assert turned.length == pytest.approx(min(expected, step_learning.CAP * 0.7))
    _, later = stepped([5.0, 5.0, 5.0, -5.0, 1.0])
    assert later.gradient_sum == pytest.approx(step_learning.RESTART * 25.0 + 1.0)
    assert later.length == pytest.approx(0.7 * 1.0 / np.sqrt(step_learning.RESTART * 25.0 + 1.0))


def test_steps_grow_more_slowly_where_y_follows_late():
    x, before, lengths = jnp.zeros(1), jnp.ones(1), {}
    for delay in (1.0, 4.0):
        scalars = initial_scalars(x)._replace(length=jnp.array(1.0), delay=jnp.array(delay))
        inputs = StepInputs(x - 1, x, x - 1, before, before, 1e9, 5, False, 0.0)
        lengths[delay] = float(propose_step(scalars, inputs).length)
    assert lengths[1.0] == pytest.approx(2.0) and lengths[4.0] == pytest.approx(2.0**0.25)


def test_steps_are_shortened_where_x_swings():
    """The tracker points back to the average of x: by SHORTENING a round, sqrt(1 + t) at most."""
    zero, one = jnp.zeros(1), jnp.ones(1)
    scalars = initial_scalars(zero)._replace(ramping=jnp.zeros(()), shortening=jnp.array(1.5))
    inputs = StepInputs(one, zero - 1, zero, one, one, 1.0, 99, False, 0.0)
    assert propose_step(scalars, inputs).shortening == pytest.approx(1.5 * 1.3)
    assert propose_step(scalars, inputs._replace(tracker=-one)).shortening == 1.5
    assert propose_step(scalars, inputs._replace(t=2)).shortening == pytest.approx(3**0.5)
    longest = scalars._replace(shortening=jnp.array(7.9)), inputs._replace(t=10_000)
    assert propose_step(*longest).shortening == 8


@pytest.mark.wide
def test_local_work_solves_the_lower_level():
    """y and z of one agent beside dense solutions in float64, and the rows they were paid with."""
    given = quad(noise=0.3)
    own = given.objectives(3).for_agent(1)
    x, y = given.start(0)
    sample = Sample(0, 0, 0, None, None)
    given_x = x + 0.5
    exactly = local_solver.LocalLimits(20, 1e-10, 1e-10)
    result = local_solver.solve_locally(own, given_x, y, y, sample, 64, exactly)
    A, expected = given.A[1], given.lower_solution(np.asarray(given_x))[1]
    np.testing.assert_allclose(result.y, expected, rtol=1e-8)
    f_y = expected - given.a[1] + given.D[1].T @ np.asarray(given_x)
    np.testing.assert_allclose(result.z, np.linalg.solve(A, f_y), rtol=1e-7)
    rows = 12
    assert result.cost.samples == 2 * rows and result.cost.gradients == rows * (1 + 1 + 1)
    assert result.cost.hvps <= rows * (2 * LOWER + 1)


@pytest.mark.wide
@pytest.mark.parametrize("t", [0, 3])
def test_one_solver_at_the_start_and_later_equals_two(monkeypatch, t):
    given = quad(noise=0.3)
    own, (x, y) = given.objectives(3).for_agent(1), given.start(0)
    memory = local_solution.WorkMemory(*(jnp.array(number) for number in (0.5, 0.1, 1.0, 0.0)))
    inputs = (
        own,
        (x + 0.5, y, y),
        memory,
        jnp.array(99.0),
        jnp.array(t),
        Sample(0, 0, 0, None, None),
    )
    one = local_solution.work_locally(*inputs)
    monkeypatch.setattr(local_solution, "takes_all_rows", lambda *inputs: False)
    two = local_solution.work_locally(*inputs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), one, two)
    assert (one.memory.reference == memory.reference) == (t > 0) and one.cost.hvps > 0


def test_few_batches_stand_for_many_rows():
    own = quad().objectives(3).for_agent(0)
    assert local_solver.local_rows(own.train, 2, 4).where is None
    few = local_solver.local_rows(own.train, 11, 2)
    assert few.number == 6 and list(few.where) == [11, 0, 1, 2, 3, 4]


def test_work_is_done_where_it_is_needed():
    needed = jnp.array([True, False])
    work = lambda one, x: local_solver.run_if(one, lambda: x + 1, x)
    assert list(jax.vmap(work)(needed, jnp.array([1.0, 5.0]))) == [2.0, 5.0]


@pytest.mark.wide
def test_an_ill_conditioned_lower_level_is_solved_for():
    """At condition 100 gradient steps of y alone would take hundreds of rounds to follow x once."""
    given = quad(mu=0.01, L=1.0, noise=0.05)
    run = diamond.simulate(given, ring(4), solve(batch=3), 300, every=300)
    first, last = run.history["stationarity"]
    assert last < 0.01 * first
    assert run.costs["hvps"].min() > 2 * 300 * 3  # more than the two products of every round


@pytest.mark.wide
def test_a_run_that_is_lost_rolls_back_and_continues_with_smaller_steps():
    """The upper loss is not a number where x is too far, which the first ramp does not know."""
    given = quad(noise=0.1)
    expected = given.minimizer()
    far = 1.5 * np.linalg.norm(expected)

    def upper(x, y, rows):
        poison = jnp.where(jnp.sum(x**2) > far**2, jnp.nan, 1.0)
        return poison * given.upper(x, y, rows)

    rows = [[given.rows[part][i] for i in range(4)] for part in ("train", "valid")]
    start = lambda key: given.start(0)
    problem = Problem(upper, given.lower, start, *rows, shuffle=False)
    with pytest.warns(RuntimeWarning, match="back to round 0 with steps"):
        run = diamond.simulate(problem, ring(4), solve(batch=2), 200, every=200)
    assert run.rounds == 200 and gap(given, run) < 0.2
    assert 0.01 < run.resolved["shrunk"] < 1


def test_resumed_it_ends_in_the_same_bits():
    given = quad(), ring(4), solve(batch=3)
    whole = diamond.simulate(*given, 20, every=10)
    half = diamond.simulate(*given, 10, every=10)
    again = diamond.simulate(*given, 20, every=10, resume=half.snapshot)
    np.testing.assert_array_equal(again.last_x, whole.last_x)
    np.testing.assert_array_equal(again.history["gradients"], whole.history["gradients"])


def test_one_call_chooses_everything():
    given = quad(noise=0.1)
    run = diamond.solve(given, ring(4))
    assert gap(given, run) < 0.1 and run.message.startswith("converged: the gradient is")
    assert "Quasi-Newton steps" in run.description and "4 agents on ring(4)" in run.description
    short = diamond.solve(given, ring(4), calls=500)
    assert short.message.startswith("stopped at round") and "calls" in short.message
    spent = sum(short.history[name][-1] for name in ("gradients", "hvps", "jvps"))
    assert spent >= 500 and short.rounds < run.rounds
    at = (run.history["upper_loss"][0] + run.history["upper_loss"][-1]) / 2
    assert "upper_loss" in diamond.solve(given, ring(4), target=at).message
    assert diamond.solve(given, ring(4), rounds=3).rounds == 3


@pytest.mark.wide
def test_through_channels_it_learns_steps_and_says_why():
    given = quad(noise=0.1)
    run = diamond.solve(given, ring(4).through(diamond.network.channels.quantized(8)))
    assert gap(given, run) < 0.1 and "has fallen by" in run.message
    assert run.message.startswith("converged by round")
    assert "mini-batches of 2 rows, for 4 agents on ring(4)" in run.description
    assert "because its channels change messages" in run.description


def test_one_agent_needs_no_network():
    run = diamond.solve(quad(agents=1), rounds=5)
    assert run.rounds == 5 and "one agent" in run.description
    with pytest.raises(ValueError, match=r"4 agents, which need a network.*ring\(4\)"):
        diamond.solve(quad())


@pytest.mark.wide
def test_wrong_arguments_are_those_of_solve_and_a_name_is_a_method(tmp_path):
    for wrong, meant in {"round": "rounds", "bacth": "batch", "devises": "devices"}.items():
        with pytest.raises(
            TypeError, match=f"solve has no argument '{wrong}'; did you mean {meant}"
        ):
            diamond.solve(quad(), ring(4), **{wrong: 3})
    with pytest.raises(ValueError, match="no algorithm 'gtsgd'; did you mean gt_sgd"):
        diamond.solve(quad(), ring(4), algorithm="gtsgd")
    run = diamond.solve(quad(), ring(4), algorithm="GT-SGD", rounds=2, batch=3)
    assert run.config["algorithm"]["batch"] == 3 and "given by the user" in run.description
    loaded = diamond.load(run.save(tmp_path / "run"), quad())
    assert loaded.description == run.description


def history_run(loss, stationarity=None, rounds=None):
    """A run with this history of upper losses, and none of rollbacks."""
    rounds = rounds or [2**i for i in range(len(loss))]
    history = {"round": np.array(rounds), "upper_loss": np.array(loss, float)}
    if stationarity is not None:
        history["stationarity"] = np.array(stationarity, float)
    return SimpleNamespace(rounds=rounds[-1], history=history)


def test_only_a_minimum_with_a_small_gradient_is_called_converged():
    flat, rises = [9, 3, 2, 1, 1, 1], [9, 1, 2, 3, 3, 3]
    small, large = [1, 0.1, 0.1, 1e-5, 1e-5, 1e-5], [1.0] * 6
    assert _plateau(history_run(flat, small), 0).startswith("converged by round 32")
    for case in ((flat, large), (flat, None), (rises, small), ([1, 2, 3, 4, 5, 6], small)):
        assert _plateau(history_run(*case), 0).startswith("stopped early at round 32")
    assert _plateau(history_run([9, 3, 2, 1, np.nan, np.nan], small), 0).startswith("stopped early")
    assert _plateau(history_run([9, 8, 7, 6, 5, 4], small), 0) == ""


def test_minima_before_a_rollback_end_no_run():
    """The loss falls after the rollback in round 16, though it was lower before."""
    run = history_run([9, 1, 5, 5, 5, 3])
    assert _plateau(run, 0) and _plateau(run, 16) == "" == _plateau(run, 32)


@pytest.mark.wide
def test_the_answer_is_the_best_evaluation_of_a_run_that_gets_worse(tmp_path):
    """Steps that are too long: x swings away from the minimizer, finite for a while."""
    method = diamond.dsgd(1.2, 0.3, batch=4, hypergradient=diamond.hypergradient.exact())
    given = quad(noise=0.0)
    run = diamond.simulate(given, ring(4), method, 12, every=1)
    losses = run.history["upper_loss"]
    at = int(losses.argmin())
    assert at < 12 and losses[-1] > losses[at]
    assert f"x and y are of round {at}, with an upper loss of {losses[at]:.4g}" in run.message
    again = diamond.simulate(given, ring(4), method, at, every=1)
    np.testing.assert_array_equal(run.x, again.last_x)
    np.testing.assert_array_equal(run.y, again.last_y)
    assert np.abs(np.asarray(run.last_x) - run.x).max() > 0
    loaded = diamond.load(run.save(tmp_path / "run"), given)
    np.testing.assert_array_equal(loaded.x, run.x)
    np.testing.assert_array_equal(loaded.last_x, run.last_x)
    assert loaded.message == run.message
    longer = diamond.simulate(given, ring(4), method, 13, every=1, resume=loaded)
    whole = diamond.simulate(given, ring(4), method, 13, every=1)
    np.testing.assert_array_equal(longer.last_x, whole.last_x)
    (lane,) = simulate_seeds([0], given, ring(4), method, 12, every=1)
    np.testing.assert_allclose(lane.x, run.x, rtol=1e-8)
    assert lane.best.round == at and lane.message == run.message


@pytest.mark.wide
def test_newton_steps_reach_the_minimizer_of_a_smoothed_absolute_value():
    """Without a line search they cycle: the curvature is that of the kink, or none."""
    rows = [{"a": np.ones(4)}]
    smooth = lambda y: jnp.sqrt(y**2 + 1e-4)
    lower = lambda x, y, r: jnp.mean(r["a"]) * jnp.sum(smooth(y - x) + 1e-3 * y**2)
    upper = lambda x, y, r: jnp.mean(r["a"]) * jnp.sum(y**2)
    problem = Problem(upper, lower, lambda key: (jnp.ones(2), jnp.zeros(2)), rows, rows)
    own = problem.objectives(4).for_agent(0)
    x, y = problem.start(0)
    limits = local_solver.LocalLimits(20, 1e-3, 1e-6)
    start = y + jnp.array([0.9, 0.2])
    result = local_solver.solve_locally(own, x, start, y, Sample(0, 0, 0, None, None), 64, limits)
    slope = jax.grad(own.g, 1)(x, result.y, None)
    assert np.linalg.norm(slope) < 1e-3 * float(result.reference)
