"""What a run found: had in Python, from its folder, in other programs' files, and on the screen."""

import csv
import json
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, skip_measures, without_optimizations
from helpers import ESTIMATORS, build, logistic, quad, ring, same_bits
from safetensors.numpy import load_file
from tiny_experiment import TOML
from typer.testing import CliRunner

import diamond
from diamond import cli
from diamond.core.pytrees import named_leaves
from diamond.experiment.loading import rebuild_tree
from diamond.metrics import stopping
from diamond.records.best_point import better_point
from diamond.records.folder_reader import open_run
from diamond.records.result_table import solution_entries
from diamond.records.solution import MAX_UNNAMED, summarize_x

OPTIONS = dict(alpha=0.05, beta=0.2, eta=0.3, gamma=0.3, batch=3)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    (tmp_path / "tiny.toml").write_text(TOML)
    with without_optimizations():
        yield tmp_path


def simulate(problem=None, rounds=15, every=3, **given):
    algorithm = build("diamond", hypergradient=ESTIMATORS["conjugate_gradient"], **OPTIONS)
    problem = problem or quad()
    return diamond.simulate(problem, ring(problem.agents), algorithm, rounds, every=every, **given)


def command(*words, code=0):
    env = {"NO_COLOR": "1", "COLUMNS": "150", "TERM": "dumb"}
    found = CliRunner().invoke(cli.app, [str(word) for word in words], env=env)
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == code, found.output
    return found


def result(*words):
    return json.loads(command(*words, "--json").stdout)


def alike(one, two):
    """Whether two runs tell the same, whichever arrays they hold."""
    for name in ("history", "per_agent", "costs"):
        mine, other = getattr(one, name), getattr(two, name)
        assert set(mine) == set(other)
        for key in mine:
            np.testing.assert_array_equal(mine[key], other[key])
    assert one.traffic == two.traffic and one.resolved == two.resolved
    assert (one.rounds, one.seed, one.messages) == (two.rounds, two.seed, two.messages)
    assert same_bits((one.x, one.y, one.best.x), (two.x, two.y, two.best.x))
    assert one.best[:2] == two.best[:2]


def test_a_run_saved_in_python_comes_back(here):
    """x is a list with a dict in it: the problem's own structure, or the same by its names."""
    run = simulate(logistic())
    assert run.problem is logistic() and run.config["algorithm"]["batch"] == 3
    path = run.save("kept")
    with pytest.raises(FileExistsError, match="holds a run already"):
        run.save(path)
    for found in (diamond.load(path, logistic()), diamond.load(path)):
        alike(run, found)
        assert found.network.agents == 3 and found.network.lam == run.network.lam
        assert found.config["rounds"] == 15 and found.config["every"] == 3
    assert found.problem is None and isinstance(found.x[1], dict)
    again = diamond.load(path, logistic()).save("again")
    assert open_run(again).digest() == open_run(path).manifest["digest"]
    with pytest.raises(ValueError, match="does not know its problem"):
        found.save("third")
    with pytest.raises(ValueError, match=r"\.state\.x of the run is not there"):
        diamond.load(path, quad())
    with pytest.raises(FileNotFoundError, match=r"no run found"):
        diamond.load(here)


def test_names_of_leaves_are_a_tree_again():
    """Whatever keys are made of."""
    tree = {"a]b": [1, {"c'd": 2}], 'e"': (3, 4), "f.g": {7: 5, 9: 6}}
    assert rebuild_tree(named_leaves(tree)) == {**tree, 'e"': [3, 4]}
    assert rebuild_tree({"": 3}) == 3
    assert rebuild_tree({".x": 1, ".y[0]": 2})._asdict() == {"x": 1, "y": [2]}


def test_a_run_from_a_file_comes_back_with_its_problem(here, float32):
    command("run", "tiny.toml", "--quiet")
    run = diamond.load("runs/tiny")
    assert run.status == "finished" and run.rounds == 24 and run.problem.agents == 3
    assert run.config["algorithm"]["name"] == "diamond" and run.network.name == "ring(3)"
    again = diamond.simulate(
        run.problem, run.network, cli_algorithm(run), run.rounds, every=run.config["every"]
    )
    run.history.pop("seconds"), again.history.pop("seconds")
    alike(run, again)
    (here / "runs/tiny/config.toml").write_text("problem = 3\n")
    with pytest.warns(RuntimeWarning, match="cannot be rebuilt"):
        assert diamond.load("runs/tiny").problem is None


def cli_algorithm(run):
    """The algorithm that a loaded run's configuration names."""
    from diamond.config.components import read_algorithm

    return read_algorithm(run.config["algorithm"]).build()


def test_the_best_round_is_kept_through_a_stop(here):
    """Of a run that overshoots, the best is not the last; a checkpoint knows it."""
    saved = []
    run = simulate(rounds=12, on_progress=saved.append)
    losses = run.history["upper_loss"]
    assert run.best.upper_loss == losses.min()
    assert run.best.round == run.history["round"][losses.argmin()]
    then = next(s for s in saved if ".best.x" in s.arrays)
    later = simulate(
        rounds=12,
        resume=then._replace(entries=saved[0].entries[:1], per_agent=saved[0].per_agent[:1]),
    )
    assert later.best.round == run.best.round and same_bits(later.best.x, run.best.x)
    first = better_point(None, {"round": 3, "upper_loss": 2.0}, "x", "y")
    assert better_point(first, {"round": 6, "upper_loss": 2.0}, "u", "v") is first
    assert better_point(first, {"round": 6, "upper_loss": float("nan")}, "u", "v") is first
    assert better_point(None, {"round": 0, "upper_loss": float("nan")}, "u", "v") is None
    assert better_point(first, {"round": 9, "upper_loss": 1.0}, "u", "v") == (9, 1.0, "u", "v")


@cache
def whole():
    """The run that nothing stops."""
    return simulate(rounds=60)


@pytest.mark.parametrize("stop, why", [
    ({"metric": 1.0}, "metric"),
    ({"metric": 1e-9, "samples": 40}, "samples"),
    ({"bytes": 100}, "bytes"),
    ({"seconds": 1e-9}, "seconds"),
    ({"upper_loss": "<= 1e9"}, "upper_loss"),
])  # fmt: skip
def test_a_run_stops_where_it_is_told(stop, why):
    run = simulate(rounds=60, stop=stop)
    assert run.rounds < 60 and run.message.startswith(f"stopped at round {run.rounds}: {why} ")
    count = len(run.history["round"])
    for name in set(run.history) - {"seconds"}:
        np.testing.assert_array_equal(run.history[name], whole().history[name][:count])
    entries = [dict(zip(run.history, row)) for row in zip(*run.history.values())]
    met = [bool(stopping.stop_reason(stop, entry)) for entry in entries]
    assert met == [False] * (count - 1) + [True]


def test_a_metric_that_rises_ends_a_run_from_above():
    run = simulate(logistic(), rounds=30, stop={"accuracy": ">= 0.5"})
    assert run.rounds < 30 and run.history["accuracy"][-1] >= 0.5


@pytest.mark.parametrize("stop, said", [
    ({"metrik": 1}, "no measure or cost 'metrik'; did you mean metric?"),
    ({"metric": "soon"}, "metric = 'soon'; give a finite number"),
    ({"metric": float("nan")}, "give a finite number"),
    ({"samples": 0}, "a cost ends a run at a number above 0"),
    ({"samples": "<= 3"}, "a cost ends a run at a number above 0"),
])  # fmt: skip
def test_a_stop_that_cannot_be_is_refused(stop, said):
    with pytest.raises(ValueError, match="stop: ") as found:
        simulate(stop=stop)
    assert said in str(found.value)


def test_what_can_stop_a_run_is_what_is_measured():
    run = simulate(logistic(), rounds=0)
    known = {*stopping.MEASURES, *stopping.COSTS, "accuracy"} - {"calls"}  # a sum of three
    assert {*stopping.CALLS} <= known
    assert known <= {*run.history} and {*run.history} - known == {
        "round",
        "curvature",
        "solver_error",
    }


def test_a_finished_run_is_gone_on_with(here):
    whole = result("run", "tiny.toml", "--out", "whole")["runs"][0]
    command("run", "tiny.toml", "--set", "rounds=12", "--quiet")
    found = command("run", "tiny.toml", "--rounds", "24")
    assert "extending runs/tiny to round 24" in found.stderr
    shown = result("show", "runs/tiny")["runs"][0]
    assert shown["digest"] == whole["digest"] and shown["status"] == "finished"
    assert "rounds = 24" in (here / "runs/tiny/config.toml").read_text()
    assert [path.name for path in (here / "runs").iterdir()] == ["tiny"]
    found = command("run", "tiny.toml", "--rounds", "20", code=2)
    assert "runs/tiny has 24 rounds already" in found.stderr
    other = command("run", "tiny.toml", "--rounds", "30", "--set", "seed=5", "--quiet")
    assert "folder: runs/tiny-2" in other.stdout


def test_a_file_can_say_when_to_stop(here):
    stop = ["--set", "stop={upper_loss = 1e9}", "--set", "rounds=1000"]
    found = command("run", "tiny.toml", *stop)
    assert "stopped at round 0: upper_loss" in open_run(here / "runs/tiny").manifest["message"]
    assert "finished" in found.stdout and "\nstopped at round 0: upper_loss" in found.stdout
    again = result("resume", "runs/tiny")
    assert again["runs"][0]["round"] == 0 and "stopped at round 0" in again["stopped"]["tiny"]
    more = ["run", "tiny.toml", "--rounds", "24"]
    refused = command(*more, *stop[:2], code=2).stderr
    assert "runs/tiny stopped at round 0: upper_loss" in refused and "--set 'stop={}'" in refused
    found = command(*more, "--set", "stop={}")
    assert "extending runs/tiny" in found.stderr and "stopped" not in found.stdout
    assert result("show", "runs/tiny")["runs"][0]["round"] == 24
    sweep = "--set", "stop={upper_loss = 1e9}", "--set", "seed=[0, 1]"
    found = command("compare", "tiny.toml", *sweep)
    assert "\nseed1 stopped at round 0: upper_loss" in found.stdout
    wrong = command("check", "tiny.toml", "--set", "stop={metrc = 1}", code=2).stderr
    assert "stop: no measure or cost 'metrc'; did you mean metric?" in wrong


def test_the_answer_is_shown_and_exported(here):
    command("run", "tiny.toml", "--quiet")
    run = diamond.load("runs/tiny")
    text = command("show", "runs/tiny").stdout
    assert f"best: round {run.best.round}, upper loss {run.best.upper_loss:.4g}" in text
    assert f"x[1]  {np.mean(run.x, 0)[1]: .4g}" in text
    (path,) = command("export", "runs/tiny").stdout.split()
    with np.load(here / path) as found:
        np.testing.assert_array_equal(found["x"], run.x)
        np.testing.assert_array_equal(found["best/y"], run.best.y)
        np.testing.assert_array_equal(found["history/metric"], run.history["metric"])
    (path,) = result("export", "runs/tiny", "--to", "safetensors", "--out", "a/x.safetensors")[
        "files"
    ]
    assert path == "a/x.safetensors"
    assert same_bits(load_file(here / path)["y"], run.y)
    paths = command("export", "runs/tiny", "--to", "csv").stdout.split()
    x, y, history = (list(csv.reader((here / path).read_text().splitlines())) for path in paths)
    assert x[0] == ["entry", "mean", "agent 0", "agent 1", "agent 2"] and x[1][0] == "x[0]"
    np.testing.assert_array_equal([float(v) for v in x[2][2:]], np.asarray(run.x)[:, 1])
    assert y[0] == ["entry", "agent 0", "agent 1", "agent 2"] and len(history) == 10
    assert "no format 'pickle'" in command("export", "runs/tiny", "--to", "pickle", code=2).stderr
    command("run", "tiny.toml", "--set", "rounds=3", "--quiet")
    assert "2 runs are there; name one" in command("export", "runs", code=2).stderr


def test_entries_with_names_are_shown_by_them(here, monkeypatch):
    skip_measures(monkeypatch)
    rows = {"a": np.eye(3), "b": np.zeros(3)}
    loss = lambda x, y, rows: jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + jnp.mean(x**2 + y**2)
    start = lambda key: (jnp.zeros((3, 2)), jnp.zeros(3))
    make = lambda names, init=start: diamond.Problem(
        lambda x, y, rows: loss(x[:, 0], y, rows),
        lambda x, y, rows: loss(x[:, 0], y, rows),
        init, [rows], [rows], names=names,
    )  # fmt: skip
    assert make(["age", "bmi", "dose"]).names == ("age", "bmi", "dose")
    with pytest.raises(ValueError, match=r"2 names for an x that is of shape \(3, 2\)"):
        make(["age", "bmi"])
    with pytest.raises(ValueError, match="for an x that is 2 arrays"):
        make(["age"], lambda key: ([jnp.zeros(1)] * 2, jnp.zeros(3)))
    run = diamond.simulate(make(["age", "bmi", "dose"]), ring_of_one(), diamond.dsgd(**PLAIN), 2)
    run.save("named")
    text = command("show", "named").stdout
    assert "  age   " in text and "  dose  " in text
    paths = command("export", "named", "--to", "csv").stdout.split()
    lines = (here / paths[0]).read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:4]] == ["age[0]", "age[1]", "bmi[0]"]
    large = summarize_x({"w": np.zeros(MAX_UNNAMED + 1)}, None)
    assert large == {"size": MAX_UNNAMED + 1} and solution_entries(large) == []
    single = summarize_x({"a": np.float64(3), "b": np.ones((1, 2))}, None)
    assert solution_entries(single) == [("x['a']", [3.0]), ("x['b'][0]", [1.0, 1.0])]


PLAIN = dict(alpha=0.1, beta=0.1, batch=1, hypergradient=ESTIMATORS["exact"])


def ring_of_one():
    return diamond.network.complete(1)


def test_a_run_draws_itself(here):
    pytest.importorskip("matplotlib")
    path = simulate(rounds=3).plot(here / "run.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
