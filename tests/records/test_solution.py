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
from diamond.metrics import stopping
from diamond.metrics.measures import SAMPLED
from diamond.records import best_point
from diamond.records.best_point import better_point, describe_answer
from diamond.records.folder_reader import open_run
from diamond.records.result_table import solution_entries
from diamond.records.solution import MAX_UNNAMED, summarize_x
from diamond.records.stored_arrays import rebuild_tree

OPTIONS = dict(alpha=0.05, beta=0.2, eta=0.3, gamma=0.3, batch=3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    (tmp_path / "tiny.toml").write_text(TOML)
    with without_optimizations():
        yield tmp_path


def simulate(problem=None, rounds=15, every=3, **options):
    algorithm = build("diamond", hypergradient=ESTIMATORS["conjugate_gradient"], **OPTIONS)
    problem = problem or quad()
    return diamond.simulate(
        problem, ring(problem.agents), algorithm, rounds, every=every, **options
    )


def command(*words, code=0):
    env = {"NO_COLOR": "1", "COLUMNS": "150", "TERM": "dumb"}
    result = CliRunner().invoke(cli.app, [str(word) for word in words], env=env)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def result(*words):
    return json.loads(command(*words, "--json").stdout)


def assert_same_run(first, second):
    """Whether two runs tell the same, whichever arrays they hold."""
    for name in ("history", "per_agent", "costs"):
        values, other_values = getattr(first, name), getattr(second, name)
        assert set(values) == set(other_values)
        for key in values:
            np.testing.assert_array_equal(values[key], other_values[key])
    assert first.traffic == second.traffic and first.resolved == second.resolved
    assert (first.rounds, first.seed, first.messages) == (
        second.rounds,
        second.seed,
        second.messages,
    )
    assert same_bits((first.x, first.y, first.best.x), (second.x, second.y, second.best.x))
    assert first.best[:2] == second.best[:2]


def test_a_run_saved_in_python_comes_back(folder):
    """x is a list with a dict in it: the problem's own structure, or the same by its names."""
    run = simulate(logistic())
    assert run.problem is logistic() and run.config["algorithm"]["batch"] == 3
    path = run.save("kept")
    with pytest.raises(FileExistsError, match="holds a run already"):
        run.save(path)
    for loaded in (diamond.load(path, logistic()), diamond.load(path)):
        assert_same_run(run, loaded)
        assert loaded.network.agents == 3 and loaded.network.lam == run.network.lam
        assert loaded.config["rounds"] == 15 and loaded.config["every"] == 3
    assert loaded.problem is None and isinstance(loaded.x[1], dict)
    again = diamond.load(path, logistic()).save("again")
    assert open_run(again).digest() == open_run(path).manifest["digest"]
    with pytest.raises(ValueError, match="does not know its problem"):
        loaded.save("third")
    with pytest.raises(ValueError, match=r"\.state\.x of the run is not there"):
        diamond.load(path, quad())
    with pytest.raises(FileNotFoundError, match=r"no run found"):
        diamond.load(folder)


def test_names_of_leaves_are_a_tree_again():
    """Whatever keys are made of."""
    tree = {"a]b": [1, {"c'd": 2}], 'e"': (3, 4), "f.g": {7: 5, 9: 6}}
    assert rebuild_tree(named_leaves(tree)) == {**tree, 'e"': [3, 4]}
    assert rebuild_tree({"": 3}) == 3
    assert rebuild_tree({".x": 1, ".y[0]": 2})._asdict() == {"x": 1, "y": [2]}


def test_a_run_from_a_file_comes_back_with_its_problem(folder, float32):
    command("run", "tiny.toml", "--quiet")
    run = diamond.load("runs/tiny")
    assert run.status == "finished" and run.rounds == 24 and run.problem.agents == 3
    assert run.config["algorithm"]["name"] == "diamond" and run.network.name == "ring(3)"
    again = diamond.simulate(
        run.problem, run.network, cli_algorithm(run), run.rounds, every=run.config["every"]
    )
    run.history.pop("seconds"), again.history.pop("seconds")
    assert_same_run(run, again)
    (folder / "runs/tiny/config.toml").write_text("problem = 3\n")
    with pytest.warns(RuntimeWarning, match="cannot be rebuilt"):
        assert diamond.load("runs/tiny").problem is None


def cli_algorithm(run):
    """The algorithm that a loaded run's configuration names."""
    from diamond.config.components import read_algorithm

    return read_algorithm(run.config["algorithm"]).build()


@pytest.mark.wide
def test_the_best_round_is_kept_through_a_stop(folder):
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
    first = better_point(None, {"round": 3, "upper_loss": 2.0}, lambda: "xy")
    point = lambda: "uv"
    for loss in (2.1, float("nan"), float("-inf")):
        assert better_point(first, {"round": 6, "upper_loss": loss}, point) is first
    assert better_point(first, {"round": 6, "upper_loss": 2.0}, point) == (6, 2.0, "u", "v")
    assert better_point(None, {"round": 0, "upper_loss": float("nan")}, point) is None
    assert better_point(None, {"round": 0, "local_loss": 1.0}, point) is None
    assert better_point(first, {"round": 9, "upper_loss": 1.0}, point) == (9, 1.0, "u", "v")


@cache
def long_run():
    """The run that nothing stops."""
    return simulate(rounds=60)


@pytest.mark.wide
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
        np.testing.assert_array_equal(run.history[name], long_run().history[name][:count])
    entries = [dict(zip(run.history, row)) for row in zip(*run.history.values())]
    met = [bool(stopping.stop_reason(stop, entry)) for entry in entries]
    assert met == [False] * (count - 1) + [True]


def test_a_metric_that_rises_ends_a_run_from_above():
    run = simulate(logistic(), rounds=30, stop={"accuracy": ">= 0.5"})
    assert run.rounds < 30 and run.history["accuracy"][-1] >= 0.5


@pytest.mark.parametrize("stop, message", [
    ({"metrik": 1}, "no measure or cost 'metrik'; did you mean metric?"),
    ({"metric": "soon"}, "metric = 'soon'; give a finite number"),
    ({"metric": float("nan")}, "give a finite number"),
    ({"samples": 0}, "a cost ends a run at a number above 0"),
    ({"samples": "<= 3"}, "a cost ends a run at a number above 0"),
])  # fmt: skip
def test_a_stop_that_cannot_be_is_refused(stop, message):
    with pytest.raises(ValueError, match="stop: ") as error:
        simulate(stop=stop)
    assert message in str(error.value)


def test_what_can_stop_a_run_is_what_is_measured():
    run = simulate(logistic(), rounds=0)
    names = {*stopping.MEASURES, *stopping.COSTS, "accuracy"} - {"calls"}  # a sum of three
    assert {*stopping.CALLS} <= names and {*SAMPLED} <= names
    names -= {*SAMPLED}  # measured where y* is not solved for
    assert names <= {*run.history} and {*run.history} - names == {
        "round",
        "curvature",
        "solver_error",
    }


def test_a_finished_run_is_extended(folder):
    long_run = result("run", "tiny.toml", "--out", "whole")["runs"][0]
    command("run", "tiny.toml", "--set", "rounds=12", "--quiet")
    output = command("run", "tiny.toml", "--rounds", "24")
    assert "extending runs/tiny to round 24" in output.stderr
    shown = result("show", "runs/tiny")["runs"][0]
    assert shown["digest"] == long_run["digest"] and shown["status"] == "finished"
    assert "rounds = 24" in (folder / "runs/tiny/config.toml").read_text()
    assert [path.name for path in (folder / "runs").iterdir()] == ["tiny"]
    output = command("run", "tiny.toml", "--rounds", "20", code=2)
    assert "runs/tiny has 24 rounds already" in output.stderr
    other = command("run", "tiny.toml", "--rounds", "30", "--set", "seed=5", "--quiet")
    assert "folder: runs/tiny-2" in other.stdout


def test_a_file_that_names_the_measure_or_no_interval_extends_a_run_all_the_same(folder):
    """Folders of earlier versions do not name "exact", the default of all problems then."""
    command("run", "tiny.toml", "--set", "rounds=6", "--quiet")
    assert "measure" not in (folder / "runs/tiny/config.toml").read_text()
    (folder / "tiny.toml").write_text('measure = "exact"\n' + TOML)
    output = command("run", "tiny.toml", "--rounds", "12")
    assert "extending runs/tiny to round 12" in output.stderr
    (folder / "tiny.toml").write_text('measure = "exact"\n' + TOML.replace("every = 3\n", ""))
    output = command("run", "tiny.toml", "--rounds", "18")
    assert "extending runs/tiny to round 18" in output.stderr
    assert "every = 3" in (folder / "runs/tiny/config.toml").read_text()
    output = command("run", "tiny.toml", "--rounds", "24", "--set", "measure=cheap", "--quiet")
    assert "folder: runs/tiny-2" in output.stdout


def test_a_file_can_say_when_to_stop(folder):
    stop = ["--set", "stop={upper_loss = 1e9}", "--set", "rounds=1000"]
    output = command("run", "tiny.toml", *stop)
    assert "stopped at round 0: upper_loss" in open_run(folder / "runs/tiny").manifest["message"]
    assert "\nStopped at round 0: upper_loss" in output.stdout
    again = result("resume", "runs/tiny")
    assert again["runs"][0]["round"] == 0 and "stopped at round 0" in again["stopped"]["tiny"]
    more = ["run", "tiny.toml", "--rounds", "24"]
    refused = command(*more, *stop[:2], code=2).stderr
    assert "runs/tiny stopped at round 0: upper_loss" in refused and "--set 'stop={}'" in refused
    output = command(*more, "--set", "stop={}")
    assert "extending runs/tiny" in output.stderr and "topped" not in output.stdout
    assert result("show", "runs/tiny")["runs"][0]["round"] == 24
    sweep = "--set", "stop={upper_loss = 1e9}", "--set", "seed=[0, 1]"
    output = command("compare", "tiny.toml", *sweep)
    assert "\nseed1: stopped at round 0: upper_loss" in output.stdout
    wrong = command("check", "tiny.toml", "--set", "stop={metrc = 1}", code=2).stderr
    assert "stop: no measure or cost 'metrc'; did you mean metric?" in wrong


def test_the_answer_is_shown_and_exported(folder):
    command("run", "tiny.toml", "--quiet")
    run = diamond.load("runs/tiny")
    text = command("show", "runs/tiny").stdout
    best = run.best
    first = f"upper loss {run.history['upper_loss'][0]:.4g} at the start, {best.upper_loss:.4g} in"
    assert text.startswith(f"24 rounds of 3 agents on ring(3): {first} round {best.round}.\n")
    lines = [line.split() for line in text.splitlines()]
    assert ["x[1]", f"{np.mean(run.x, 0)[1]:.4g}"] in lines
    assert ["y[1]", *(f"{value:.4g}" for value in run.y[:, 1])] in lines
    assert text.startswith(repr(run.summary())) and run.summary() == run.summary()
    (path,) = command("export", "runs/tiny").stdout.split()
    with np.load(folder / path) as archive:
        np.testing.assert_array_equal(archive["x"], run.x)
        np.testing.assert_array_equal(archive["y"], run.best.y)
        np.testing.assert_array_equal(archive["last/y"], run.last_y)
        np.testing.assert_array_equal(archive["history/metric"], run.history["metric"])
    (path,) = result("export", "runs/tiny", "--to", "safetensors", "--out", "a/x.safetensors")[
        "files"
    ]
    assert path == "a/x.safetensors"
    assert same_bits(load_file(folder / path)["y"], run.y)
    paths = command("export", "runs/tiny", "--to", "csv").stdout.split()
    x, y, history = (list(csv.reader((folder / path).read_text().splitlines())) for path in paths)
    assert x[0] == ["entry", "mean", "agent 0", "agent 1", "agent 2"] and x[1][0] == "x[0]"
    np.testing.assert_array_equal([float(v) for v in x[2][2:]], np.asarray(run.x)[:, 1])
    assert y[0] == ["entry", "agent 0", "agent 1", "agent 2"] and len(history) == 10
    assert "no format 'pickle'" in command("export", "runs/tiny", "--to", "pickle", code=2).stderr
    command("run", "tiny.toml", "--set", "rounds=3", "--quiet")
    assert "2 runs are there; name one" in command("export", "runs", code=2).stderr


def test_entries_with_names_are_shown_by_them(folder, monkeypatch):
    skip_measures(monkeypatch)
    rows = {"a": np.eye(3), "b": np.zeros(3)}
    loss = lambda x, y, rows: (
        jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + jnp.mean(x**2 + x * y + y**2)
    )
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
    assert "\nage " in text and "\ndose " in text
    paths = command("export", "named", "--to", "csv").stdout.split()
    lines = (folder / paths[0]).read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:4]] == ["age[0]", "age[1]", "bmi[0]"]
    large = summarize_x({"w": np.zeros(MAX_UNNAMED + 1)}, None)
    assert large == {"size": MAX_UNNAMED + 1} and solution_entries(large) == []
    single = summarize_x({"a": np.float64(3), "b": np.ones((1, 2))}, None)
    assert solution_entries(single) == [("x['a']", [3.0]), ("x['b'][0]", [1.0, 1.0])]


PLAIN = dict(alpha=0.1, beta=0.1, batch=1, hypergradient=ESTIMATORS["exact"])


def ring_of_one():
    return diamond.network.complete(1)


@pytest.mark.wide
def test_a_run_draws_itself(folder):
    pytest.importorskip("matplotlib")
    figure = simulate(rounds=3).plot(folder / "run.png")
    assert not {*folder.glob("*.png")} - {folder / "run.png"}
    for picture in ((folder / "run.png").read_bytes(), figure._repr_png_()):
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_message_says_of_which_round_the_answer_is():
    """Worse, no better than the start, not a number, not measured, or as good: in plain words."""

    def message(losses, reason=""):
        entries = [{"round": i, "upper_loss": loss} for i, loss in enumerate(losses)]
        best = None
        for entry in entries:
            best = better_point(best, entry, lambda: "xy")
        return describe_answer(best, entries, reason)

    nan = float("nan")
    assert message([3, 2, 1]) == message([3, 1, 1]) == ""
    assert message([3, 1, 2]) == (
        "the upper loss got worse after round 1 (2 in round 2); x and y are of round 1, with an "
        "upper loss of 1"
    )
    assert message([1, 2]).startswith(
        "no round is better than the start (2 in round 1); x and y are"
    )
    assert message([3, 1, nan]).startswith(
        "the upper loss of round 2 is not a number; x and y are of"
    )
    eps = float(jnp.finfo(jnp.zeros(()).dtype).eps)
    assert message([1e4, 1e4 * (1 + eps)]) == ""  # equal up to rounding
    assert message([9, 1, 1.0001]) == "x and y are of round 1, where the upper loss is smallest"
    assert (
        message([nan, nan]) == "the upper loss was never a number, so x and y are of the last round"
    )
    private = "a private run does not choose by losses without noise"
    assert describe_answer(None, [{"round": 0, "upper_loss": 1.0}], private).startswith(private)
    assert "not measured" in describe_answer(None, [{"round": 0, "local_loss": 1.0}])


def test_the_best_point_of_a_very_large_run_is_not_stored(monkeypatch):
    monkeypatch.setattr(best_point, "MOST_BYTES", 10)
    run = simulate(rounds=3)
    assert run.best is None and run.x is run.last_x
    assert "of which no second copy is stored, so x and y are of the last round" in run.message


def test_a_plot_along_calls_adds_gradients_and_products(folder, monkeypatch):
    drawn = {}
    keep = lambda runs, path, *rest: drawn.update(lines=next(iter(runs.values())).lines) or path
    monkeypatch.setattr("diamond.records.plot.plot_convergence", keep)
    run = simulate(rounds=3)
    run.plot(folder / "run.png", along="calls")
    expected = sum(run.history[name] for name in ("gradients", "hvps", "jvps"))
    np.testing.assert_array_equal([line["calls"] for line in drawn["lines"]], expected)
    assert expected[-1] > 0
