"""The demo, shortened: four methods on the same digits, the same network and the same draws."""

from pathlib import Path

import jax
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, without_optimizations
from tiny_experiment import RecordingListener

from diamond.config.digits import digits
from diamond.config.experiment_file import validate
from diamond.experiment.plans import plan_comparison
from diamond.records.folder_reader import open_runs
from diamond.reproduce.paper_methods import build_method
from diamond.templates import demo_experiment


def ran(folder):
    """The demo's runs by label, as their folders tell."""
    plan_comparison(
        validate(demo_experiment.experiment_tables(), Path(), "demo"), folder, "demo"
    ).execute(RecordingListener())
    runs = {run.manifest["algorithm"]["label"]: run for run in open_runs([folder])}
    return {name: runs[name] for name in demo_experiment.METHODS}


def course(run, name):
    return np.array([line[name] for line in run.lines])


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, without_optimizations():
        skip_loss_checks(patch)
        patch.setattr(demo_experiment, "ROUNDS", 50)
        patch.setattr(demo_experiment, "EVERY", 25)
        yield ran(tmp_path_factory.mktemp("demo"))


def test_the_settings_say_the_same_as_the_objects():
    experiment = validate(demo_experiment.experiment_tables(), Path(), "demo")
    with jax.enable_x64(False):
        for part, (name, constants) in zip(experiment.algorithm, demo_experiment.METHODS.items()):
            assert part.label == name
            assert part.build() == build_method(
                name, constants, demo_experiment.BATCH, demo_experiment.CHAIN
            )
    network = experiment.network[0].build()
    assert (network.name, network.lam) == (
        demo_experiment.make_network().name,
        demo_experiment.make_network().lam,
    )


@pytest.mark.wide
def test_all_methods_see_the_same_draws(compared):
    assert list(compared) == ["DIAMOND", "GT-SGD", "M-SGD", "D-SGD"]
    first = compared["DIAMOND"]
    for run in compared.values():
        assert run.manifest["status"] == "finished"
        np.testing.assert_array_equal(course(run, "round"), [0, 25, 50])
        np.testing.assert_array_equal(course(run, "samples"), course(first, "samples"))
        assert run.manifest["costs"]["samples"] == first.manifest["costs"]["samples"]
        assert run.lines[0] == first.lines[0]  # from the same point
    spent = np.array(first.manifest["costs"]["samples"])
    # a round: one batch of f, one of g, and 0 to 9 of the chain
    assert (spent > 50 * 32 * 2).all() and (spent < 50 * 32 * 12).all()


@pytest.mark.wide
def test_histories_are_finite_and_the_objective_falls(compared):
    for run in compared.values():
        assert all(
            np.isfinite(course(run, name)).all() for name in run.last_evaluation if name != "agents"
        )
        assert run.last_evaluation["upper_loss"] < 0.95 * run.lines[0]["upper_loss"]


@pytest.mark.wide
def test_only_tracking_sends_twice_as_much(compared):
    network = demo_experiment.make_network()
    numbers = 64 * 20 + 20 + 20 * 20 + 20  # of x
    for name, run in compared.items():
        copies = 2 if name in ("DIAMOND", "GT-SGD") else 1
        assert run.last_evaluation["bytes"] == 50 * 2 * len(network.edges) * numbers * copies * 4


def test_every_row_of_the_digits_is_with_one_agent(monkeypatch):
    skip_loss_checks(monkeypatch)
    problem = digits()
    assert sum(problem.counts(part).sum() for part in ("train", "valid", "test")) == 1797
    assert all(len(np.unique(rows["b"])) <= 5 for rows in problem.rows["train"])


@pytest.mark.wide
def test_diamond_is_best_on_both_counts(compared):
    """Each method at its best of one grid: DIAMOND's loss no worse, its metric the smallest."""
    loss = {name: course(run, "upper_loss")[-2:].mean() for name, run in compared.items()}
    metric = {name: course(run, "metric")[1:].mean() for name, run in compared.items()}
    assert loss["DIAMOND"] <= 1.01 * min(loss.values())
    for name in ("GT-SGD", "M-SGD", "D-SGD"):
        assert metric["DIAMOND"] < metric[name]
