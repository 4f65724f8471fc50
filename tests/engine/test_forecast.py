"""Forecasts: equal to the counts of the run, and timed on warm work."""

import time

import jax
import pytest
from helpers import quad, ring

import diamond
from diamond.algorithms.solve import solve
from diamond.engine import forecast as module
from diamond.engine.forecast import forecast
from diamond.engine.single_driver import SingleDriver

ROUNDS = 60
PROGRAMS = ["run_rounds_until", "measure_all"]


@pytest.mark.wide
def test_a_forecast_counts_the_later_estimates_of_a_run():
    problem, network, algorithm = quad(), ring(4), solve(batch=4, steps="learned")
    estimate = forecast(problem, network, algorithm, ROUNDS, every=30)
    run = diamond.simulate(problem, network, algorithm, ROUNDS, every=30, progress=False)
    assert estimate.samples == run.history["samples"][-1]
    assert estimate.bytes == run.history["bytes"][-1]


@pytest.mark.wide
def test_the_run_compiles_no_program_of_its_forecast_again(caplog):
    settings = quad(agents=3), ring(3), solve(batch=3, steps="learned"), 5
    with jax.log_compiles():
        forecast(*settings, every=5)
        compiled = [name for name in PROGRAMS if f"Compiling jit({name})" in caplog.text]
        caplog.clear()
        diamond.simulate(*settings, every=5, progress=False)
    again = [name for name in PROGRAMS if f"Compiling jit({name})" in caplog.text]
    assert (compiled, again) == (PROGRAMS, [])


@pytest.mark.wide
def test_a_forecast_times_warm_rounds_and_states_one_rate(monkeypatch):
    """The first round is slow here, and every evaluation takes a tenth of a second."""
    run_rounds, evaluate, first = SingleDriver.run_rounds, SingleDriver.evaluate, []
    calls = []

    def run_rounds_slowly(self, until):
        result = run_rounds(self, until)
        self.seconds += 0.0 if first else 50.0
        first.append(until)
        return result

    def evaluate_slowly(self, *arguments):
        calls.append(self.t)
        time.sleep(0.1)
        evaluate(self, *arguments)

    monkeypatch.setattr(SingleDriver, "run_rounds", run_rounds_slowly)
    monkeypatch.setattr(SingleDriver, "evaluate", evaluate_slowly)
    inputs = quad(), ring(4), solve(batch=4, steps="learned"), ROUNDS
    estimate = forecast(*inputs, every=30)
    assert 0.3 < estimate.seconds < 50 and len(first) > 1
    assert estimate.rounds_per_second == pytest.approx(ROUNDS / estimate.seconds)
    assert len(calls) == 2
    monkeypatch.setattr(module, "LONG", 0.05)  # an evaluation this long is not repeated
    forecast(*inputs, every=30)
    assert len(calls) == 3


def test_a_forecast_of_no_rounds_is_one_evaluation():
    estimate = forecast(quad(), ring(4), solve(batch=4, steps="learned"), 0)
    assert estimate.rounds_per_second == estimate.samples == estimate.bytes == 0


@pytest.mark.wide
def test_a_forecast_ends_although_the_method_ends_before_the_last_round():
    inputs = quad(noise=0.0), ring(4), solve(batch=4)
    made = diamond.simulate(*inputs, 500, every=500).rounds
    estimate = forecast(*inputs, 500, every=500)
    assert made < 500 and estimate.rounds_per_second > 0
