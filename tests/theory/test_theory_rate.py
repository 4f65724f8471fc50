"""Measured rates: slopes of power laws known exactly, and costs to reach an accuracy."""

import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import quad, ring

import diamond
from diamond import theory


def law(exponent):
    """A history whose average metric is 3 T^exponent exactly, but for a huge one at round 0."""
    rounds = np.arange(0, 2001, 100)
    sums = np.r_[0, 3 * rounds[1:] ** (exponent + 1.0)]
    metric = [1e6, *np.diff(sums) / 100]
    return {"round": rounds.tolist(), "metric": metric, "samples": (7 * rounds).tolist()}


@pytest.mark.parametrize("exponent", [-2 / 3, -0.5])
def test_the_slope_of_a_power_law_is_its_exponent(exponent):
    fit = theory.slope([law(exponent)] * 3, 200)
    np.testing.assert_allclose(fit, [exponent] * 3, rtol=1e-9)


def test_the_interval_of_the_slope_is_students():
    fit = theory.slope([law(-0.6), law(-0.5), law(-0.7)], 200)
    half = 4.302653 * 0.1 / np.sqrt(3)  # t with two degrees of freedom
    np.testing.assert_allclose(fit, [-0.6, -0.6 - half, -0.6 + half], rtol=1e-6)


def test_one_run_has_a_slope_but_no_interval():
    fit = theory.slope(law(-0.6), 200)
    np.testing.assert_allclose(fit, [-0.6, np.nan, np.nan], rtol=1e-9)


def test_the_slope_looks_at_the_rounds_from_the_first_on():
    history = law(-0.6)
    early = theory.averages(np.array(history["round"]), np.array(history["metric"]))
    history["metric"][1] += 50  # of round 100; its weight vanishes with T
    late = theory.averages(np.array(history["round"]), np.array(history["metric"]))
    x = np.log(history["round"][10:])
    expected = np.cov(x, np.log(late[9:]))[0, 1] / np.var(x, ddof=1)
    np.testing.assert_allclose(theory.slope([history], 1000).value, expected, rtol=1e-9)
    assert not np.allclose(early, late)
    with pytest.raises(ValueError, match="1 evaluations from round 2000"):
        theory.slope(history, 2000)


def test_averages_are_those_of_the_dense_sum():
    rounds, metric = np.array([0, 3, 10, 14]), np.array([100.0, 5.0, 2.0, 1.0])
    dense = [5.0] * 3 + [2.0] * 7 + [1.0] * 4  # of rounds 1 to 14: what is next measured
    expected = [sum(dense[:t]) / t for t in (3, 10, 14)]
    np.testing.assert_allclose(theory.averages(rounds, metric), expected, rtol=1e-12)


def test_an_average_over_the_second_half_forgets_the_first():
    rounds, metric = np.array([0, 3, 10, 14]), np.array([100.0, 5.0, 2.0, 1.0])
    dense = np.array([5.0] * 3 + [2.0] * 7 + [1.0] * 4)
    expected = [(5.0 * 1.5) / 1.5, dense[5:10].mean(), dense[7:].mean()]
    np.testing.assert_allclose(theory.averages(rounds, metric, 0.5), expected, rtol=1e-12)
    late = {"round": np.arange(0, 8001, 2), "metric": (1e-9 + np.arange(0, 8001, 2)) ** -0.6}
    late["metric"][:400] = 0.0  # the law holds from round 800 on
    assert theory.slope(late, 2000).value > -0.5
    np.testing.assert_allclose(theory.slope(late, 2000, since=0.5).value, -0.6, atol=1e-3)


def test_reached_is_the_first_time_the_average_is_small_enough():
    history = law(-0.5)
    first = lambda epsilon: 100 * np.ceil((3 / epsilon) ** 2 / 100)  # 3 / sqrt(T) <= epsilon
    for epsilon in (0.25, 0.11, 0.07):
        assert theory.reached(history, epsilon, "round") == first(epsilon)
        assert theory.reached(history, epsilon, "samples") == 7 * first(epsilon)
    assert theory.reached(history, 0.01, "round") == float("inf")


def test_a_rate_is_the_slope_and_the_mean_costs():
    runs = [law(-0.5), law(-2 / 3)]
    result = theory.rate(runs, 300, (0.25, 0.01), ("round", "samples"))
    assert result.slope == theory.slope(runs, 300)
    each = [theory.reached(run, 0.25, "round") for run in runs]
    assert result.costs[0.25] == {"round": np.mean(each), "samples": 7 * np.mean(each)}
    assert result.costs[0.01]["round"] == float("inf")
    with pytest.raises(ValueError, match="no run"):
        theory.rate([])


def test_a_run_its_history_and_a_list_of_it_have_the_same_rate():
    chain = diamond.hypergradient.neumann(3, 1.6)
    algorithm = diamond.dsgd(alpha=0.1, beta=0.1, batch=2, hypergradient=chain)
    with without_optimizations():
        run = diamond.simulate(quad(), ring(4), algorithm, 40, every=2)
    expected = theory.rate(run.history, epsilons=(1e9,))
    assert expected.slope.value == theory.slope([run.history], 4).value
    assert expected.costs == {
        1e9: {"round": 2.0, **{k: run.history[k][1] for k in ("samples", "bytes")}}
    }
    for same in (run, [run], [run.history]):
        np.testing.assert_array_equal(theory.rate(same).slope, expected.slope)
