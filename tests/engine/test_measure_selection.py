"""What is measured is an argument: the same values wherever a run is made, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import quad, ring

import diamond
from diamond.engine.many_runs import simulate_many
from diamond.metrics.measures import parse_measures

GIVEN = dict(alpha=0.05, beta=0.2, batch=3)
COSTS = {"round", "samples", "gradients", "hvps", "jvps", "bytes", "seconds"}


@pytest.fixture(autouse=True)
def compiled_quickly():
    with without_optimizations():
        yield


def run(measure, problem=None, rounds=6, **options):
    problem = problem or quad()
    return diamond.simulate(
        problem, ring(4), diamond.gt_sgd(**GIVEN), rounds, every=3, measure=measure, **options
    )


def scale(x, y, rows):
    """A function of the user: the mean over rows of |x|^2."""
    return jnp.sum(x**2)


@pytest.mark.wide
def test_what_is_not_asked_for_is_absent_and_what_is_has_the_exact_values():
    exact = run("exact").history
    for measure, names in (
        ("loss", {"upper_loss"}),
        ("cheap", {"local_loss", "consensus", "x_direction"}),
        (["upper_loss", "consensus"], {"upper_loss", "consensus"}),
        (["stationarity"], {"stationarity"}),
        (["loss", "local_loss", scale], {"upper_loss", "local_loss", "scale"}),
    ):
        run_result = run(measure).history
        assert set(run_result) == names | COSTS, measure
        for name in (names | COSTS) & set(exact) - {"seconds"}:
            np.testing.assert_allclose(run_result[name], exact[name], rtol=1e-9, err_msg=name)


def test_functions_of_the_user_are_averaged_over_the_agents():
    run_result = run([scale])
    expected = np.mean(np.sum(np.asarray(run_result.last_x) ** 2, 1))
    assert run_result.history["scale"][-1] == pytest.approx(expected)
    assert run_result.per_agent["scale"].shape == (3, 4)


@pytest.mark.wide
def test_norms_of_directions_are_those_of_the_state():
    run_result = run("cheap")
    expected = np.sqrt(np.mean(np.sum(np.asarray(run_result.state.p) ** 2, 1)))
    assert run_result.history["x_direction"][-1] == pytest.approx(expected)
    learned = diamond.simulate(quad(), ring(4), diamond.dsgd(batch=3), 6, every=3, measure="cheap")
    squares = np.asarray(learned.state.step.direction)[:, -1]
    assert learned.history["x_direction"][-1] == pytest.approx(np.sqrt(squares.mean()))


@pytest.mark.wide
@pytest.mark.parametrize("measure", ["loss", "cheap", ["consensus", "upper_loss"]])
@pytest.mark.parametrize("level", ["personal", "common", "none"])
def test_lanes_and_devices_measure_the_same(measure, level):
    problem = quad(lower_level=level)
    algorithm = {
        "personal": diamond.gt_sgd(0.1, 0.2, batch=3),
        "common": diamond.dsbo(0.1, 0.2, batch=3),
        "none": diamond.gt_sgd(0.1, batch=3),
    }[level]
    inputs = dict(every=3, measure=measure)
    alone = diamond.simulate(problem, ring(4), algorithm, 6, **inputs).history
    (lane,) = simulate_many(problem, ring(4), [(algorithm, 0)], 6, batched=True, **inputs)
    sharded = diamond.simulate(problem, ring(4), algorithm, 6, devices=1, **inputs).history
    for other in (lane.history, sharded):
        assert set(other) == set(alone)
        for name in set(alone) - {"seconds"}:
            np.testing.assert_allclose(other[name], alone[name], rtol=1e-7, atol=1e-12)


@pytest.mark.wide
def test_the_lower_level_is_not_solved_where_nothing_needs_it(monkeypatch):
    def refuse(*inputs, **named):
        raise AssertionError("the lower level was solved")

    monkeypatch.setattr("diamond.metrics.lower_solution.solve_newton", refuse)
    monkeypatch.setattr("diamond.metrics.lower_solution.solve_lower_level", refuse)
    jax.clear_caches()
    run_result = run("cheap")
    assert run_result.history["round"].tolist() == [0, 3, 6]
    with pytest.raises(AssertionError, match="was solved"):
        run("loss")


def test_a_stopped_run_is_resumed_with_the_same_bits_and_only_with_the_same_measures():
    full, half = run("loss"), run("loss", rounds=3)
    again = run("loss", resume=half)
    np.testing.assert_array_equal(again.history["upper_loss"], full.history["upper_loss"])
    with pytest.raises(ValueError, match="resume: the run has measure='loss', not 'exact'"):
        run("exact", resume=half)


def test_stops_and_the_best_point_use_what_is_measured():
    run_result = run("cheap", rounds=9, stop={"local_loss": 1e9})
    assert run_result.rounds == 0 and "local_loss" in run_result.message
    cheap = run("cheap", rounds=9)  # local losses fall by disagreeing too: they choose no answer
    assert cheap.best is None and cheap.x is cheap.last_x
    assert cheap.message == "the upper loss is not measured, so x and y are of the last round"
    with pytest.raises(ValueError, match="stop needs metric, which this run does not measure"):
        run("cheap", stop={"metric": 1.0})


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("losses", "no measure 'losses'; did you mean loss"),
        (["metric", "upperloss"], "no measure 'upperloss'; did you mean upper_loss"),
        ([], "give 'exact', 'loss', 'cheap' or at least one measure"),
    ],
)
def test_a_measure_that_there_is_not_is_refused(measure, message):
    with pytest.raises(ValueError, match=message):
        parse_measures(measure, quad())


@pytest.mark.wide
def test_a_comparison_shows_the_columns_that_there_are(tmp_path):
    run_result = diamond.compare(
        quad(), ring(4), {"mine": diamond.dsgd(**GIVEN)}, 6, every=3, measure="cheap"
    )
    header = run_result.table().splitlines()[0]
    assert "local loss" in header and "metric" not in header and "upper loss" not in header
    run_result.plot(tmp_path / "picture.png")
    (run,) = run_result.runs.values()
    run.plot(tmp_path / "run.png")
    assert {path.name for path in tmp_path.iterdir()} == {"picture.png", "run.png"}
