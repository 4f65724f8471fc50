"""Forecasts: equal to the counts of the run, and timed on warm work."""

import time

import pytest
from helpers import quad, ring

import diamond
from diamond.algorithms.solve import solve
from diamond.engine import forecast as module
from diamond.engine.forecast import forecast
from diamond.engine.single_driver import SingleDriver

ROUNDS = 60


def test_a_forecast_counts_the_later_estimates_of_a_run():
    problem, network, algorithm = quad(), ring(4), solve(batch=4)
    estimate = forecast(problem, network, algorithm, ROUNDS, every=30)
    run = diamond.simulate(problem, network, algorithm, ROUNDS, every=30, progress=False)
    assert estimate.samples == run.history["samples"][-1]
    assert estimate.bytes == run.history["bytes"][-1]


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
    inputs = quad(), ring(4), solve(batch=4), ROUNDS
    estimate = forecast(*inputs, every=30)
    assert 0.3 < estimate.seconds < 50 and len(first) > 1
    assert estimate.rounds_per_second == pytest.approx(ROUNDS / estimate.seconds)
    assert len(calls) == 2
    monkeypatch.setattr(module, "LONG", 0.05)  # an evaluation this long is not repeated
    forecast(*inputs, every=30)
    assert len(calls) == 3


def test_a_forecast_of_no_rounds_is_one_evaluation():
    estimate = forecast(quad(), ring(4), solve(batch=4), 0)
    assert estimate.rounds_per_second == estimate.samples == estimate.bytes == 0
