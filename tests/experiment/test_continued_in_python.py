"""Runs and comparisons saved from Python: loaded, resumed and extended."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from commands import command
from fast_compilation import without_optimizations
from helpers import quad, ring, same_bits

import diamond

CHAIN = diamond.hypergradient.neumann(3, 1.6)
OPTIONS = dict(alpha=0.05, eta=0.5, gamma=0.5, batch=3, hypergradient=CHAIN)
MINE = diamond.diamond(beta=0.2, **OPTIONS)
GIVEN = quad(), ring(4), MINE


def same(run, other):
    """Whether two runs agree in every bit, but for the seconds."""
    names = [*run.history.keys() - {"seconds"}]
    counts = all(np.array_equal(run.history[name], other.history[name]) for name in names)
    return counts and same_bits(run.state, other.state) and same_bits(run.costs, other.costs)


def test_a_saved_run_is_extended_to_the_bits_of_a_longer_one(tmp_path):
    with without_optimizations():
        whole = diamond.simulate(*GIVEN, 200, seed=1, every=50)
        diamond.simulate(*GIVEN, 100, seed=1, every=50).save(tmp_path / "run")
        loaded = diamond.load(tmp_path / "run", quad())
        assert loaded.rounds == 100 and loaded.snapshot.entries[-1]["round"] == 100
        longer = diamond.simulate(*GIVEN, 200, seed=1, every=50, resume=loaded)
        assert same(longer, whole) and longer.best.round == whole.best.round
        with pytest.raises(ValueError, match="the run has seed=1"):
            diamond.simulate(*GIVEN, 200, every=50, resume=loaded)
        longer.save(tmp_path / "longer")
        lossy = ring(4).through(diamond.network.channels.drops(0.1))
        with pytest.raises(ValueError, match=r"network \(ring\(4\), not ring\(4\) through drops"):
            diamond.simulate(GIVEN[0], lossy, MINE, 300, seed=1, resume=longer)
        others = {
            "alpha = 0.05, not 0.06": diamond.diamond(beta=0.2, **OPTIONS | {"alpha": 0.06}),
            "batch = 3, not 2": diamond.diamond(beta=0.2, **OPTIONS | {"batch": 2}),
            "estimator = Momentum, not Plain": diamond.gt_sgd(0.05, 0.2, 3, CHAIN),
        }
        for name, other in others.items():
            with pytest.raises(ValueError, match=f"constants .{name}.; give the inputs"):
                diamond.simulate(*GIVEN[:2], other, 200, seed=1, resume=loaded)
        old = replace(loaded, inputs={})  # saved without them
        assert diamond.simulate(*GIVEN, 101, seed=1, resume=old).rounds == 101
    again = diamond.load(tmp_path / "longer", quad())
    assert again.rounds == 200 and again.message == longer.message
    with pytest.raises(ValueError, match="has no snapshot"):
        diamond.simulate(*GIVEN, 300, resume=replace(again, snapshot=None))
    with pytest.warns(RuntimeWarning, match="rows of the problem are not those of the run"):
        diamond.load(tmp_path / "run", quad(seed=5))
    message = command("resume", tmp_path / "run", code=2).stderr
    assert "diamond.simulate(problem, network, algorithm, rounds, seed, resume=diamond" in message


@pytest.mark.wide
def test_a_saved_run_without_a_lower_level_is_extended(tmp_path):
    """A checkpoint has no arrays for a y that is absent; gt_saga has a state of its own."""
    rows = [{"a": np.arange(8.0) - agent} for agent in range(3)]
    square = lambda x, rows: jnp.mean((rows["a"] - x) ** 2)
    problem = diamond.Problem(square, None, lambda key: jnp.zeros(()), rows)
    inputs = problem, ring(3), diamond.gt_saga(0.1, batch=2)
    with without_optimizations():
        diamond.simulate(*inputs, 4, every=2).save(tmp_path / "run")
        for loaded in diamond.load(tmp_path / "run", problem), diamond.load(tmp_path / "run"):
            assert loaded.y is None and loaded.best.y is None
            whole = diamond.simulate(*inputs, 8, every=2)
            assert same_bits(
                diamond.simulate(*inputs, 8, every=2, resume=loaded).last_x, whole.last_x
            )


def test_a_saved_comparison_is_loaded_and_extended(tmp_path):
    algorithms = {"mine": MINE, "wild": diamond.diamond(beta=40.0, **OPTIONS)}
    given = quad(), ring(4), algorithms
    with without_optimizations():
        whole = diamond.compare(*given, rounds=200, seeds=2, every=50)
        first = diamond.compare(*given, rounds=100, seeds=[0], every=50, stop={"metric": 1e-9})
        first.save(tmp_path / "some")
        loaded = diamond.load(tmp_path / "some", quad())
        longer = diamond.compare(*given, rounds=200, seeds=2, every=50, resume=loaded)
    assert isinstance(loaded, diamond.Comparison) and loaded.table() == first.table()
    assert (loaded.rounds, loaded.every, loaded.diverged) == (100, 50, first.diverged)
    assert list(longer.runs) == list(whole.runs) and set(longer.diverged) == set(whole.diverged)
    assert all(same(longer.runs["mine", seed], whole.runs["mine", seed]) for seed in (0, 1))
    assert longer.runs["wild", 0] is loaded.runs["wild", 0]
    assert longer.diverged["wild", 0] == first.diverged["wild", 0]
    assert diamond.load(tmp_path / "some").rows() == first.rows()  # without its problem
    assert loaded.stop == first.stop
    assert str(loaded.costs_to_target()) == str(first.costs_to_target())
    with pytest.raises(
        ValueError, match=r"mine: resume: the run has another network .ring\(4\), not"
    ):
        diamond.compare(quad(), diamond.network.complete(4), algorithms, 100, resume=loaded)
    with pytest.raises(ValueError, match=r"wild: .*beta = 40, not 41"):
        other = algorithms | {"wild": diamond.diamond(beta=41.0, **OPTIONS)}
        diamond.compare(*given[:2], other, 100, resume=loaded)
    with pytest.raises(ValueError, match="no algorithm is labelled mine"):
        diamond.compare(quad(), ring(4), {"other": MINE}, 200, resume=loaded)
    message = command("resume", tmp_path / "some", code=2).stderr
    assert "diamond.compare(problem, network, algorithms, rounds, seeds, resume=" in message


@pytest.mark.wide
def test_seeds_of_one_program_are_extended_too():
    algorithms = {"mine": MINE}
    fixed = dict(seeds=2, every=50)
    with without_optimizations():
        lanes = diamond.compare(quad(), ring(4), algorithms, 100, batched=True, **fixed)
        longer = diamond.compare(quad(), ring(4), algorithms, 200, resume=lanes, **fixed)
        whole = diamond.simulate(*GIVEN, 200, seed=1, every=50)
    assert longer.runs["mine", 1].history["round"].tolist() == [0, 50, 100, 150, 200]
    for name in ("metric", "samples", "bytes"):
        np.testing.assert_allclose(longer.runs["mine", 1].history[name], whole.history[name], 1e-6)


@pytest.mark.wide
def test_a_comparison_of_a_file_is_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from tiny_experiment import TOML

    (tmp_path / "tiny.toml").write_text(TOML)
    with without_optimizations():
        command("compare", "tiny.toml", "--set", "seed=[0, 1]", "--set", "rounds=6", "--quiet")
        loaded = diamond.load("runs/tiny")
    assert list(loaded.runs) == [("diamond", 0), ("diamond", 1)]
    assert loaded.problem.agents == 3 and list(loaded.algorithms) == ["diamond"]
    mine = loaded.algorithms["diamond"]
    run, path = loaded.runs["diamond", 0], diamond.network.path(3)
    with pytest.raises(ValueError, match=r"another network .ring.3., not path"):
        diamond.simulate(loaded.problem, path, mine, 9, resume=run)
