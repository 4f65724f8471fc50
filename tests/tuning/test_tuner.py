"""The tuner: rungs, the share that is kept, seeds, diverged candidates."""

import math

import pytest

from diamond.tuning.successive_halving import Rung, best_result, split_by_candidate, tune

pytestmark = pytest.mark.quick
SEEDS = (7, 8, 9)


class Runs:
    """Trials whose loss is |candidate| + seed / 1000; candidates in `failing` diverge."""

    def __init__(self, failing=lambda candidate, rounds: False):
        self.calls, self.failing = [], failing

    def __call__(self, candidates, seeds, rounds):
        self.calls.append((list(candidates), tuple(seeds), rounds))
        return [
            [
                {
                    "diverged": 1 if self.failing(candidate, rounds) else None,
                    "loss": abs(candidate) + s / 1000,
                }
                for s in seeds
            ]
            for candidate in candidates
        ]


def tuned(candidates, budget, runs):
    return tune(candidates, runs, SEEDS, budget, lambda trial: trial["loss"])


def test_a_grid_is_one_rung():
    runs = Runs()
    results = tuned([3, -1, 2], [Rung(50, 2)], runs)
    assert runs.calls == [([3, -1, 2], (7, 8), 50)]
    assert [result.candidate for result in results] == [3, -1, 2]  # in the order of the candidates
    assert [result.loss for result in results] == pytest.approx([3.0075, 1.0075, 2.0075])
    assert best_result(results) is results[1] and len(results[1].trials) == 2


def test_the_best_of_a_rung_reach_the_next():
    runs = Runs()
    results = tuned(
        list(range(9, 0, -1)), [Rung(10, 1), Rung(30, 2, 1 / 3), Rung(90, 3, 1 / 3)], runs
    )
    assert [call[0] for call in runs.calls] == [list(range(9, 0, -1)), [1, 2, 3], [1]]
    assert [call[1:] for call in runs.calls] == [((7,), 10), ((7, 8), 30), (SEEDS, 90)]
    assert [len(result.losses) for result in results] == [1] * 6 + [2, 2, 3]
    assert best_result(results).candidate == 1


def test_the_next_best_are_tried_where_all_that_are_kept_diverge():
    runs = Runs(lambda candidate, rounds: rounds == 30 and candidate <= 2)
    results = tuned([1, 2, 3, 4], [Rung(10, 1), Rung(30, 1, 1 / 2)], runs)
    assert [call[0] for call in runs.calls] == [[1, 2, 3, 4], [1, 2], [3, 4]]
    assert [candidate.loss for candidate in results[:2]] == [math.inf] * 2 and best_result(
        results
    ).candidate == 3


def test_one_diverged_trial_puts_a_candidate_last():
    runs = Runs(lambda result, rounds: True)
    results = tuned([2, 1], [Rung(10, 1), Rung(30, 1, 1 / 2)], runs)
    assert (
        len(runs.calls) == 3 and best_result(results) is results[0]
    )  # all diverged: the first one
    trials = [{"diverged": None, "loss": 1.0}, {"diverged": 3, "loss": 0.0}]
    (result,) = tune([0], lambda *_: [trials], SEEDS, [Rung(5, 2)], lambda trial: trial["loss"])
    assert result.loss == math.inf
    (result,) = tune([0], lambda *_: [trials[:1]], SEEDS, [Rung(5, 1)], lambda trial: math.nan)
    assert result.loss == math.inf


def test_trials_are_split_by_candidate():
    assert split_by_candidate([{"a": k} for k in range(4)], 2) == [
        [{"a": 0}, {"a": 1}],
        [{"a": 2}, {"a": 3}],
    ]
