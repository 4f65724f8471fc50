"""The demo, shortened: four methods on the same digits, the same network and the same draws."""

import jax
import numpy as np
import pytest
from compiling import quickly, unchecked

from diamond import demo


@pytest.fixture(scope="module")
def compared():
    told = []
    with pytest.MonkeyPatch.context() as patch, quickly():
        unchecked(patch)
        patch.setattr(demo, "ROUNDS", 50)
        patch.setattr(demo, "EVERY", 25)
        runs = demo.compare(lambda name, entry: told.append((name, entry["round"])))
    return runs, told


def test_all_methods_see_the_same_draws_and_are_told_about(compared):
    runs, told = compared
    assert list(runs) == ["DIAMOND", "GT-SGD", "M-SGD", "D-SGD"]
    assert told == [(name, t) for name in runs for t in (0, 25, 50)]
    first = runs["DIAMOND"]
    for run in runs.values():
        np.testing.assert_array_equal(run.history["samples"], first.history["samples"])
        np.testing.assert_array_equal(run.costs["samples"], first.costs["samples"])
        for name, start in first.history.items():  # from the same point
            assert name == "seconds" or run.history[name][0] == start[0]
    spent = first.costs["samples"]  # a round: one batch of f, one of g, and 0 to 9 of the chain
    assert (spent > 50 * 32 * 2).all() and (spent < 50 * 32 * 12).all()


def test_histories_are_finite_and_the_objective_falls(compared):
    runs, _ = compared
    for run in runs.values():
        assert all(np.isfinite(values).all() for values in run.history.values())
        assert run.history["upper_loss"][-1] < 0.95 * run.history["upper_loss"][0]


def test_only_tracking_sends_twice_as_much(compared):
    runs, _ = compared
    network = demo.peers()
    numbers = 64 * 20 + 20 + 20 * 20 + 20  # of x
    for name, run in runs.items():
        copies = 2 if name in ("DIAMOND", "GT-SGD") else 1
        assert run.history["bytes"][-1] == 50 * 2 * len(network.edges) * numbers * copies * 8


def test_every_row_of_the_digits_is_with_one_agent(monkeypatch):
    unchecked(monkeypatch)
    problem = demo.digits()
    assert sum(problem.counts(part).sum() for part in ("train", "valid", "test")) == 1797
    assert all(len(np.unique(rows["b"])) <= 5 for rows in problem.rows["train"])


def test_diamond_is_best_on_both_counts():
    """Each method at its best of one grid: DIAMOND's loss no worse, its metric the smallest."""
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(False):
        patch.setattr(demo, "EVERY", 100)
        runs = demo.compare(lambda name, entry: None)
    loss = {name: run.history["upper_loss"][-2:].mean() for name, run in runs.items()}
    metric = {name: run.history["metric"][1:].mean() for name, run in runs.items()}
    assert loss["DIAMOND"] <= 1.01 * min(loss.values())
    for name in ("GT-SGD", "M-SGD", "D-SGD"):
        assert metric["DIAMOND"] < metric[name]
