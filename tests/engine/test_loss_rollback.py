"""A run whose objective rises goes back to its lowest look, in the same way in every runtime."""

import warnings
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import quad, same_bits
from rollback_scenarios import script_loss_increase

import diamond
from diamond.engine import many_runs as runtime
from diamond.engine.many_runs import simulate_many, simulate_seeds

ROUNDS, MARKS = 120, [20, 50, 60, 100]
COSTS = ("samples", "gradients", "hvps", "jvps", "bytes")
SAID = (
    "the upper loss is 9 .*, after 1 at its least and 3 at the start; back to round 50 with steps"
)
SOME = diamond.bome(beta=0.1, batch=4)  # alpha is open, and y is not solved for
GIVEN = diamond.network.path(3), SOME, ROUNDS


@pytest.fixture(autouse=True)
def bold(monkeypatch):
    script_loss_increase(monkeypatch, 100, 50)
    with without_optimizations():
        yield


def problem():
    return quad(agents=3)


@cache
def undisturbed():
    """The run, and all that it takes to go on from each of its evaluations."""
    seen = []
    with pytest.warns(RuntimeWarning, match=SAID):
        run = diamond.simulate(problem(), *GIVEN, every=MARKS, on_progress=seen.append)
    return run, [
        saved._replace(entries=[*saved.entries], per_agent=[*saved.per_agent]) for saved in seen
    ]


@pytest.mark.wide
def test_it_goes_back_to_the_lowest_look_and_says_what_it_did():
    run, saved = undisturbed()
    assert run.resolved["risen"] == 1 and run.resolved["lost"] == 50
    assert run.history["round"].tolist() == [0, *MARKS, ROUNDS]  # what was undone is not there
    assert run.history["upper_loss"][-1] < run.history["upper_loss"][0]
    # 60 and 100 are measured again after it went back
    assert [int(snapshot.arrays[".t"]) for snapshot in saved] == [0, 20, 50, 60, 60, 100, 120]
    sent = np.diff(run.history["bytes"])
    assert sent[2] > 5 * sent[-1] / 20 * 10  # the 50 rounds gone back on count, with the 10


def test_from_any_checkpoint_it_ends_in_the_same_bits():
    run, saved = undisturbed()
    for snapshot in saved[2:5]:  # before it rose, on its way up, and after it went back
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            other = diamond.simulate(problem(), *GIVEN, every=MARKS, resume=snapshot)
        assert same_bits(other.state, run.state) and other.resolved == run.resolved
        for name in ("upper_loss", *COSTS):
            np.testing.assert_array_equal(other.history[name][-2:], run.history[name][-2:])


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore:the upper loss is:RuntimeWarning")
def test_it_does_so_whatever_is_measured_and_where_divergence_would_stop_it():
    run, _ = undisturbed()
    stopping = diamond.simulate(problem(), *GIVEN, every=ROUNDS, on_divergence="stop")
    assert same_bits(stopping.state, run.state)
    (light,) = simulate_many(problem(), GIVEN[0], [(SOME, 0)], ROUNDS, MARKS, measure="loss")
    like(light.history, run.history)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the upper loss is:RuntimeWarning")
def test_cut_over_devices_and_side_by_side_it_does_the_same():
    run, _ = undisturbed()
    like(diamond.simulate(problem(), *GIVEN, every=MARKS, devices=1).history, run.history)
    (outcome,) = simulate_many(problem(), GIVEN[0], [(SOME, 0)], ROUNDS, MARKS, batched=True)
    like(outcome.history, run.history)
    (lane,) = simulate_seeds([0], problem(), *GIVEN, every=MARKS)
    like(lane.history, run.history)


def like(history, expected):
    """The same rounds and bytes, the same losses to rounding."""
    for name in ("round", "bytes"):
        np.testing.assert_array_equal(history[name], expected[name])
    np.testing.assert_allclose(history["upper_loss"], expected["upper_loss"], rtol=1e-4)


class LaneBackend(SimpleNamespace):
    """Three runs side by side, of which the second has risen."""

    rerun, failed = np.array([False, True, False]), [None, None, 7]

    def histories(self):
        return [{"round": np.arange(2)}] * 3

    def runs(self):
        return [None] * 3

    def warn_of_standstill(self):
        pass


def test_a_lane_that_has_risen_is_made_again_alone(monkeypatch):
    table, calls = np.array([[0, 1, 2]]), []

    def alone(problem, network, algorithm, rounds, seed, *rest, **options):
        calls.append((seed, options["on_divergence"]))
        return SimpleNamespace(history={"round": np.arange(9)})

    monkeypatch.setattr(
        runtime, "_drive_lanes", lambda *arguments, **options: [(table, LaneBackend())]
    )
    monkeypatch.setattr(runtime, "simulate", alone)
    runs = [(SOME, seed) for seed in (5, 6, 7)]
    results = simulate_many(problem(), GIVEN[0], runs, ROUNDS, batched=True)
    assert [len(outcome.history["round"]) for outcome in results] == [2, 9, 2] and calls == [
        (6, "stop")
    ]
    assert [outcome.diverged for outcome in results] == [None, None, 7]
    results = simulate_seeds([5, 6, 7], problem(), *GIVEN)
    assert [outcome is None for outcome in results] == [True, False, True] and calls[1:] == calls[
        :1
    ]
