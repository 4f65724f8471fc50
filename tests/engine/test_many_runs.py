"""Many runs as one program: each is what it is alone."""

import numpy as np
import pytest
from fast_compilation import skip_divergence_diagnosis, without_optimizations

import diamond
from diamond import hypergradient, network
from diamond.engine import many_runs as module
from diamond.engine.many_runs import simulate_many
from diamond.gallery import quadratic

COMPARED = ("metric", "upper_loss", "stationarity", "consensus", "samples", "hvps", "bytes")
CHAIN = hypergradient.neumann(4, 2.0)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the run that diverges


@pytest.fixture(scope="module")
def problem():
    with without_optimizations():
        yield quadratic(agents=3, upper=2, lower=3, rows=[7, 9, 12])


@pytest.fixture
def lanes(monkeypatch):
    skip_divergence_diagnosis(monkeypatch)
    monkeypatch.setattr(module, "LANES", 2)


def run(problem, runs, batched, rounds=20, every=6, **options):
    return simulate_many(problem, network.ring(3), runs, rounds, every, batched=batched, **options)


def same(results, expected):
    assert [o.diverged for o in results] == [o.diverged for o in expected]
    for outcome, other in zip(results, expected):
        assert set(outcome.history) == set(other.history)
        np.testing.assert_array_equal(outcome.history["round"], other.history["round"])
        for name in COMPARED:
            np.testing.assert_allclose(outcome.history[name], other.history[name], 1e-9, 1e-12)


@pytest.mark.wide
def test_diamond_in_lanes_is_diamond_alone(problem, lanes):
    """Three groups of two lanes, the last one half empty; the third run diverges."""
    numbers = [(0.1, 0.3, 0), (0.05, 0.2, 1), (0.1, 1e20, 1), (0.1, 0.3, 2), (0.02, 0.1, 0)]
    runs = [(diamond.diamond(a, b, 0.5, 0.5, 3, CHAIN), seed) for a, b, seed in numbers]
    completed = []
    results = run(problem, runs, True, on_run=completed.append)
    alone = run(problem, runs, False)
    assert completed == [2, 4, 5] and len(results) == 5
    same(results, alone)
    failed = results[2].diverged
    assert [o.diverged is None for o in results] == [True, True, False, True, True]
    assert 6 < failed < 20  # measured at least once on the way
    measured_rounds = [0, *range(6, failed + 1, 6)]
    assert results[2].history["round"].tolist() == measured_rounds
    assert results[0].history["round"].tolist() == [0, 6, 12, 18, 20]
    ends = {float(o.history["metric"][-1]) for o in results}
    assert len(ends) == 5  # other numbers, other seeds: other runs


@pytest.mark.wide
def test_svr_interact_in_lanes_is_svr_interact_alone(problem, lanes):
    """Lanes with other periods, one of them, and every L_g, left to the run to find."""
    numbers = [(0.05, 3, 0), (0.1, None, 1), (0.05, 5, 0)]
    runs = [(diamond.svr_interact(a, 0.2, 3, period), seed) for a, period, seed in numbers]
    results, alone = run(problem, runs, True), run(problem, runs, False)
    same(results, alone)
    assert len({o.history["samples"][-1] for o in results}) == 3


@pytest.mark.wide
def test_no_rounds_are_one_entry(problem, lanes):
    runs = [(diamond.diamond(0.1, 0.3, 0.5, 0.5, 3, CHAIN), seed) for seed in (0, 1)]
    results, alone = run(problem, runs, True, 0), run(problem, runs, False, 0)
    same(results, alone)
    assert [outcome.history["round"].tolist() for outcome in results] == [[0], [0]]


def test_runs_of_a_seed_stand_in_one_row(monkeypatch):
    monkeypatch.setattr(module, "LANES", 4)
    tables = module._lane_tables([0, 1, 0, 2, 0, 1])
    assert [table.tolist() for table in tables] == [[[0, 2, 4]], [[1, 5, 5]], [[3, 3, 3]]]
    monkeypatch.setattr(module, "LANES", 6)
    assert [table.tolist() for table in module._lane_tables([0, 1, 0, 1])] == [[[0, 2], [1, 3]]]


@pytest.mark.wide
def test_several_algorithms_go_together_each_as_its_own_program(problem, lanes):
    """Two of DIAMOND, two of D-SGD, interleaved: the order given is the order returned."""
    pair = (diamond.diamond(0.1, 0.3, 0.5, 0.5, 3, CHAIN), diamond.dsgd(0.1, 0.3, 3, CHAIN))
    runs = [(algorithm, seed) for seed in (0, 1) for algorithm in pair]
    completed = []
    results, alone = run(problem, runs, True, on_run=completed.append), run(problem, runs, False)
    same(results, alone)
    assert completed == [2, 4] and results[0].history["bytes"][-1] > results[1].history["bytes"][-1]
