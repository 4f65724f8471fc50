"""The forecast of a privacy budget against noise that is drawn, and its scaling."""

import math

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from helpers import quad

import diamond
from diamond.advice.privacy_forecast import forecast_privacy


def test_the_forecast_noise_is_that_of_a_run():
    """One round from a start with the noise of all agents: the mean x moves by alpha times it."""
    problem = quad(agents=3)
    algorithm = diamond.dsgd(
        alpha=1.0, beta=0.1, batch=4, order="atc", hypergradient=diamond.hypergradient.exact()
    )
    private = diamond.private(algorithm, epsilon=0.05, clip=0.5, rounds=1)
    (forecast,) = [f for f in forecast_privacy(private, problem, 1) if f.rounds == 1]
    network = diamond.network.complete(3)
    start = np.asarray(problem.start(0)[0])
    moves = [
        np.linalg.norm(
            diamond.simulate(problem, network, private, 1, seed, progress=False).x.mean(0) - start
        )
        for seed in range(60)
    ]
    root_mean_square = math.sqrt(np.mean(np.square(moves)))
    assert root_mean_square == pytest.approx(0.5 * forecast.noise, rel=0.25)


def test_more_rounds_need_more_noise_and_leave_the_same_error():
    """Without sampling the multiplier grows with the root of the rounds, so the error stays."""
    private = diamond.private(diamond.dsgd(alpha=0.1, beta=0.1, batch=4), epsilon=2.0, rounds=100)
    few, same, many = forecast_privacy(private, quad(agents=3), 100)
    assert (few.rounds, same.rounds, many.rounds) == (25, 100, 400)
    assert many.noise == pytest.approx(2 * same.noise, rel=0.01)
    assert few.error == pytest.approx(many.error, rel=0.02)
    assert same.error > 2 and same.verdict == "little can be learned"
