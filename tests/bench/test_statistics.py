"""What the outcomes say, against numbers worked out by hand."""

import itertools
import math

import benchmark_results
import numpy as np
import pytest
from scipy import stats

from diamond.bench import leaderboard_page, statistics, suite_results

INF, NAN = math.inf, math.nan


@pytest.fixture(scope="module")
def pairs():
    return benchmark_results.make_results()["pairs"]


def test_targets_lie_between_the_start_and_the_lowest_of_any_run(pairs):
    targets = statistics.compute_targets(pairs, 0.1)
    assert targets["smooth"] == {"start": 10, "lowest": 0.0, "target": 1.0}
    assert targets["noisy"] == {"start": 4, "lowest": 1.0, "target": pytest.approx(1.3)}
    assert statistics.compute_targets(pairs, 0.01)["linked"]["target"] == pytest.approx(0.02)


def test_targets_pass_over_what_is_not_a_number():
    pair = {
        "case": "a",
        "tuned": [benchmark_results.make_run("dsgd", [3, NAN, -INF])],
        "untuned": [],
    }
    pair["tuned"] += [benchmark_results.make_run("dsgd", [5, 2, 1])]
    assert statistics.compute_targets([pair], 0.5)["a"] == {"start": 4, "lowest": 1, "target": 2.5}


def test_the_cost_is_what_was_spent_at_the_first_evaluation_at_the_target():
    run = benchmark_results.make_run("diamond", [10, 5, 1, 3, 0.5])
    assert statistics.cost_to_target(run, 1.0, "round") == 20
    assert statistics.cost_to_target(run, 0.99, "bytes") == 4000
    assert statistics.cost_to_target(run, 10, "samples") == 0
    assert statistics.cost_to_target(run, 0.4, "round") == INF
    assert math.isnan(statistics.cost_to_target(run, 1.0, "network_seconds"))
    diverged = benchmark_results.make_run("diamond", [10, 5, NAN, NAN, NAN])
    assert statistics.cost_to_target(diverged, 5, "round") == 10
    assert statistics.cost_to_target(diverged, 4, "round") == INF


def test_the_median_is_infinite_where_half_of_the_seeds_never_get_there():
    assert statistics.upper_median([3, 1, 2]) == 2
    assert statistics.upper_median([4, 1, 3, 2]) == 3
    assert statistics.upper_median([1, INF, 2]) == 2
    assert statistics.upper_median([1, INF, 2, INF]) == INF
    assert statistics.upper_median([7]) == 7


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_interval_is_that_of_every_resample_there_is(n):
    """All n^n of them, each as likely."""
    costs = [2.0**i for i in range(n)]
    medians = sorted(statistics.upper_median(drawn) for drawn in itertools.product(costs, repeat=n))
    place = lambda share: medians[max(0, math.ceil(share * len(medians)) - 1)]
    assert statistics.median_interval(costs[::-1]) == (place(0.025), place(0.975))


def test_the_interval_of_ten_is_that_of_many_resamples():
    costs = np.sort(np.random.default_rng(0).lognormal(size=10))
    drawn = np.random.default_rng(1).choice(costs, (40_000, 10))
    expected = np.quantile(np.sort(drawn, 1)[:, 5], [0.025, 0.975], method="inverted_cdf")
    assert statistics.median_interval(list(costs)) == pytest.approx(tuple(expected))
    low, high = statistics.median_interval([*costs[:7], INF, INF, INF])
    assert low == pytest.approx(expected[0]) and high == INF


def test_a_row_counts_the_seeds_that_reach_the_target(pairs):
    rows = statistics.cost_table(pairs, ["round", "calls", "network_seconds"])
    row_by_pair = {(row["case"], row["method"]): row for row in rows}
    tie, other = row_by_pair["smooth", "diamond"], row_by_pair["smooth", "dsgd"]
    assert (tie["reached"], tie["round"], tie["round_low"], tie["round_high"]) == (3, 20, 20, 30)
    assert (other["reached"], other["round"]) == (2, 20)
    assert (other["round_low"], other["round_high"]) == (10, INF)
    diverged = row_by_pair["noisy", "k_free"]
    assert (diverged["reached"], diverged["seeds"], diverged["round"]) == (1, 3, INF)
    assert diverged["round_low"] == 20 and row_by_pair["linked", "k_free"]["calls"] == INF
    assert math.isnan(tie["network_seconds"]) and math.isnan(tie["network_seconds_high"])
    assert row_by_pair["linked", "dsgd"]["network_seconds"] == 10 * 50 / 1e3
    untuned = statistics.cost_table(pairs, ["round"], kind="untuned")
    assert [row["round"] for row in untuned] == [30, 30, INF, 40, INF, INF, 40, INF, INF]
    eased = statistics.cost_table(pairs, ["round"], 0.7, "untuned")
    assert [row["round"] for row in eased[:3]] == [20, 20, 30]


def test_the_matrix_has_nan_for_pairs_without_runs(pairs):
    remaining = [pair for pair in pairs if (pair["case"], pair["method"]) != ("noisy", "dsgd")]
    rows = statistics.cost_table(remaining, ["round"])
    cases, methods, costs = statistics.cost_matrix(rows, "round")
    assert (cases, methods) == (["smooth", "noisy", "linked"], ["diamond", "dsgd", "k_free"])
    np.testing.assert_array_equal(costs, [[20, 20, 40], [30, NAN, INF], [30, 10, INF]])


def test_ranks_are_shared_by_equals_and_averaged_over_cases():
    costs = np.array([[1, 2, 3, 4], [5, 5, 9, INF], [INF, 1, INF, INF], [NAN, 1, 2, 3]])
    average, difference = statistics.average_ranks(costs)
    np.testing.assert_allclose(average, [(1 + 1.5 + 3) / 3, (2 + 1.5 + 1) / 3, 3, (4 + 4 + 3) / 3])
    # Table 5(a) of Demsar (2006): 2.569 for four methods.
    assert difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 3)), abs=1e-3)


def test_the_values_of_nemenyi_are_those_of_the_literature():
    """Table 5(a) of Demsar (2006)."""
    quantiles = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]
    np.testing.assert_allclose(
        [statistics.nemenyi_quantile(k) for k in range(2, 11)], quantiles, atol=1.1e-3
    )
    assert statistics.nemenyi_quantile(2) == pytest.approx(stats.norm.ppf(0.975))


def test_there_are_no_ranks_of_one_method_or_of_no_case_in_common():
    for costs in ([[1.0], [2.0]], [[1.0, NAN], [NAN, 1.0]]):
        average, difference = statistics.average_ranks(np.array(costs))
        assert np.isnan(average).all() and math.isnan(difference)


def test_failures_say_how(pairs):
    failures = {(f["case"], f["method"], f["kind"]): f for f in statistics.list_failures(pairs)}
    counts = lambda *key: [failures[key][n] for n in ("diverged", "above_start", "missed", "short")]
    assert ("linked", "dsgd", "tuned") not in failures
    assert counts("smooth", "diamond", "tuned") == [1, 0, 0, 0]
    assert counts("smooth", "dsgd", "tuned") == [0, 0, 1, 1]
    assert counts("noisy", "k_free", "tuned") == [2, 0, 2, 0]
    assert counts("noisy", "dsgd", "tuned") == [0, 0, 3, 3]
    assert counts("linked", "dsgd", "untuned") == [0, 3, 3, 0]
    assert failures["noisy", "dsgd", "tuned"]["left"] == pytest.approx((2.6 - 1) / 3)
    assert failures["linked", "dsgd", "untuned"]["left"] == pytest.approx(2)
    assert failures["noisy", "k_free", "tuned"]["left"] == pytest.approx(0.02 / 3)


def test_a_run_that_gets_there_and_is_lost_afterwards_has_failed_but_not_missed():
    """And one that came back above its start as well."""
    runs = [
        benchmark_results.make_run("dsgd", [9, 0.5, NAN, NAN, NAN]),
        benchmark_results.make_run("dsgd", [9, 0, 3, 8, 10]),
    ]
    pair = {"case": "a", "method": "dsgd", "tuned": runs, "untuned": []}
    (failure,) = statistics.list_failures([pair])
    assert [failure[n] for n in ("diverged", "above_start", "missed", "short")] == [1, 1, 0, 0]
    assert failure["left"] == pytest.approx(10 / 9)


def test_all_of_them_lost_leaves_nothing_to_say_of_the_end():
    runs = [benchmark_results.make_run("dsgd", [9, 12])]
    pair = {"case": "a", "method": "dsgd", "tuned": runs, "untuned": runs}
    failures = statistics.list_failures([pair])
    assert [f["kind"] for f in failures if math.isnan(f["left"])] == ["tuned", "untuned"]


def test_costs_are_those_counted_anywhere():
    results = benchmark_results.make_results()
    assert (
        suite_results.counted_costs(results)
        == list(suite_results.COST_COLUMNS)
        == list(leaderboard_page.COST_TITLES)
    )
    results["pairs"] = [pair for pair in results["pairs"] if pair["case"] != "linked"]
    assert suite_results.counted_costs(results) == list(suite_results.COST_COLUMNS[:-1])


def test_results_come_back_from_their_file(tmp_path):
    results = benchmark_results.make_results()
    loaded = suite_results.load_results(suite_results.write_results(tmp_path, results).parent)
    np.testing.assert_equal(loaded, results)
    assert statistics.list_failures(loaded["pairs"]) == statistics.list_failures(results["pairs"])
    lines = (tmp_path / "costs.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 9 and lines[0].startswith("kind,case,method,seeds,reached,round")


def test_a_file_that_is_not_of_results_is_named(tmp_path):
    path = tmp_path / "other.json"
    for text in ("{", "[1, 2]"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"other.json is not a file of results"):
            suite_results.load_results(path)


def test_the_best_of_a_case_is_bold_in_latex():
    lines = suite_results.format_latex(benchmark_results.make_results(), "round").splitlines()
    assert lines[2].startswith(" & smooth & noisy & linked & shared-case rank")
    assert lines[4].startswith(r"diamond & $\mathbf{20}$ & $\mathbf{30}$ & $30$ & ")
    assert lines[6].startswith(r"k\_free & $40$ & -- & -- & ")
