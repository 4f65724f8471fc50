"""The forecast of a privacy budget against noise that is drawn, and its scaling."""

import math
import re

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from helpers import quad
from typer.testing import CliRunner

import diamond
from diamond import theory
from diamond.advice.privacy_forecast import can_be_private, forecast_privacy
from diamond.cli import app
from diamond.config import experiment_file
from diamond.privacy.accountant import Mechanism, Release, epsilon_after

RELEASES = 1  # per round: the direction of x; y stays at its site


@pytest.mark.wide
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


def test_methods_that_refuse_privacy_are_not_recommended():
    problem = quad(agents=3)
    options = {"epsilon": 2.0, "rounds": 10}
    assert can_be_private(diamond.dsgd(batch=4), problem, options)
    assert not can_be_private(diamond.gt_saga(batch=4), problem, options)
    assert not can_be_private(diamond.stable(batch=4), problem, options)
    assert not can_be_private(diamond.dsgd(batch=4), problem, options | {"clipping": "row"})


def test_what_a_budget_allows_is_printed(tmp_path, monkeypatch):
    """Every line has a multiplier with which its rounds spend the budget, and hardly less."""
    monkeypatch.setattr(theory, "estimate", lambda *words, **named: None)
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\nrounds = 100\nproblem = {kind = "quadratic", agents = 3}\n'
        'network = "ring:3"\nalgorithm = {name = "dsgd", alpha = 0.1, beta = 0.1, batch = 4}\n'
        'privacy = {epsilon = 4.0, delta = 1e-6, clipping = "whole"}\n'
    )
    words = ["advise", str(file), "--pilot", "10", "--algorithm", "dsgd"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.replace("│", " ").split())
    assert "what epsilon = 4 allows: noise in the sites' mean direction of x" in text
    assert re.search(r'in the file: algorithm = {name = "dsgd", alpha = [\d.e-]+, beta = ', text)
    assert "a private run takes given step sizes only" in text
    experiment = experiment_file.load(file)
    algorithm, problem = experiment.algorithm[0].build(), experiment.problem.build()
    forecasts = forecast_privacy(algorithm, problem, 100)
    assert [f.rounds for f in forecasts] == [25, 100, 400]
    for f in forecasts:
        numbers = f"{f.noise_multiplier:.3g} {f.noise:.3g} {f.error:.2g}"
        assert f"whole {f.rounds} {numbers}" in text
        mechanism = Mechanism(f.noise_multiplier, (Release(1.0, RELEASES),))
        assert 0.99 * 4 < epsilon_after(mechanism, f.rounds, 1e-6) <= 4.0
