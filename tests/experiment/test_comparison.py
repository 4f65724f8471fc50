"""`diamond.compare`: several algorithms side by side, from Python."""

import jax
import numpy as np
import pytest
from fast_compilation import skip_measures, without_optimizations
from helpers import quad, ring, same_bits

import diamond
from diamond.records import folder_reader

CHAIN = diamond.hypergradient.neumann(3, 1.6)
MISTAKES = [
    (["diamnd"], r"no algorithm 'diamnd'; did you mean diamond\?"),
    (["dsgd", "DSGD"], "'dsgd' is named 2 times; name it once, or give labels to its variants"),
    ([], "there is no algorithm to compare; name some"),
    ({}, "there is no algorithm to compare; name some"),
]
OPTIONS = dict(alpha=0.05, eta=0.5, gamma=0.5, batch=3, hypergradient=CHAIN)


@pytest.fixture(scope="module")
def found():
    algorithms = {
        "DIAMOND": diamond.diamond(beta=0.2, **OPTIONS),
        "wild": diamond.diamond(beta=40.0, **OPTIONS),
    }
    seen = []
    with without_optimizations():
        made = diamond.compare(
            quad(),
            ring(4),
            algorithms,
            rounds=200,
            seeds=2,
            every=50,
            on_evaluation=lambda *evaluation: seen.append(evaluation),
        )
    return made, seen


@pytest.mark.wide
def test_each_run_is_that_of_simulate(found):
    made, seen = found
    assert list(made.runs) == [("DIAMOND", 0), ("DIAMOND", 1), ("wild", 0), ("wild", 1)]
    with without_optimizations():
        alone = diamond.simulate(quad(), ring(4), diamond.diamond(beta=0.2, **OPTIONS), 200, 1, 50)
    assert same_bits(made.runs["DIAMOND", 1].state, alone.state)
    metrics = [entry["metric"] for label, seed, entry in seen if (label, seed) == ("DIAMOND", 1)]
    assert metrics == alone.history["metric"].tolist()


@pytest.mark.wide
def test_what_diverges_stops_nothing(found):
    made, _ = found
    assert set(made.diverged) == {("wild", 0), ("wild", 1)}
    assert "beta_0 = 40 exceeds 2/L_g" in made.diverged["wild", 0]
    text = made.table()
    lines = text.splitlines()
    assert len(lines) == 3 and lines[0].startswith("200 rounds")
    assert lines[0].index("upper loss") < lines[0].index("metric")
    assert lines[1].startswith("DIAMOND") and "±" in lines[1]
    assert lines[2].split() == ["wild"] + ["diverged"] * 6
    assert repr(made) == text
    mean = np.mean([made.runs["DIAMOND", s].history["upper_loss"][-1] for s in (0, 1)])
    assert f"{mean:.4g} ±" in lines[1]


def test_in_a_notebook_it_is_a_table(found):
    html = found[0]._repr_html_()
    assert html.count("<tr>") == 3 and "<td>DIAMOND</td>" in html
    strange = diamond.Comparison(
        **vars(found[0])
        | {
            "algorithms": {"<b>": found[0].algorithms["DIAMOND"]},
            "runs": {("<b>", 0): found[0].runs["DIAMOND", 0]},
        }
    )
    assert "<td>&lt;b&gt;</td>" in strange._repr_html_()


def test_it_is_saved_as_run_folders(found, tmp_path):
    made, _ = found
    assert made.save(tmp_path / "out") == tmp_path / "out"
    stored = folder_reader.open_runs([tmp_path / "out"])
    assert [run.path.name for run in stored] == [
        "DIAMOND-seed0",
        "DIAMOND-seed1",
        "wild-seed0",
        "wild-seed1",
    ]
    assert [run.manifest["status"] for run in stored] == ["finished"] * 2 + ["diverged"] * 2
    assert stored[2].manifest["message"] == made.diverged["wild", 0]
    for run in stored[:2]:
        assert run.digest() == run.manifest["digest"]
    history = made.runs["DIAMOND", 1].history
    assert [line["metric"] for line in stored[1].lines] == history["metric"].tolist()


@pytest.mark.wide
def test_seeds_as_one_program_are_the_same_to_rounding(found, tmp_path):
    """Those that diverge are run anew, alone: their last good state and its cause are the same."""
    made, seen = found
    evaluations = []
    fixed = quad(), ring(4), made.algorithms, 200, 2, 50
    with without_optimizations():
        lanes = diamond.compare(
            *fixed, on_evaluation=lambda *evaluation: evaluations.append(evaluation), batched=True
        )
    assert list(lanes.runs) == list(made.runs) and lanes.diverged == made.diverged
    assert [evaluation[:2] for evaluation in evaluations] == [evaluation[:2] for evaluation in seen]
    for who, run in made.runs.items():
        other = lanes.runs[who]
        for name in ("round", "metric", "upper_loss", "samples", "bytes"):
            np.testing.assert_allclose(other.history[name], run.history[name], 1e-9)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-9), other.state, run.state)
        for name, values in run.per_agent.items():
            np.testing.assert_allclose(other.per_agent[name], values, 1e-6, 1e-12)
        for name in ("rounds", "traffic", "messages", "resolved", "sampling", "seed"):
            assert getattr(other, name) == getattr(run, name)
        for name, spent in run.costs.items():
            np.testing.assert_array_equal(other.costs[name], spent)
    stored = folder_reader.open_runs([lanes.save(tmp_path / "lanes")])
    assert [one.digest() == one.manifest["digest"] for one in stored[:2]] == [True] * 2


def test_algorithms_by_name_have_their_own_defaults(monkeypatch):
    skip_measures(monkeypatch)
    with without_optimizations():
        made = diamond.compare(quad(), ring(4), ["D-SGD".replace("-", "")], 2, seeds=[5])
    assert list(made.runs) == [("DSGD", 5)]
    same = jax.tree.structure(made.algorithms["DSGD"]) == jax.tree.structure(diamond.dsgd())
    assert same
    for wrong, message in MISTAKES:
        with pytest.raises(ValueError, match=message):
            diamond.compare(quad(), ring(4), wrong, 2)


def test_a_method_that_fails_stops_no_other(monkeypatch, tmp_path):
    """Five numbers of each message are sent, and that of D-SGD has three."""
    skip_measures(monkeypatch)
    net = ring(4).through(diamond.network.channels.top(terms=5))
    methods = {name: getattr(diamond, name)(0.05, 0.2, 3) for name in ("dsgd", "gt_sgd")}
    message = "terms = 5, but a message has 3 numbers; take 3 or fewer"
    with (
        without_optimizations(),
        pytest.warns(RuntimeWarning, match=f"dsgd, seed 7, failed: ValueError: {message}"),
    ):
        made = diamond.compare(quad(), net, methods, 2, seeds=[7])
    assert made.failed == {("dsgd", 7): f"ValueError: {message}"} and not made.diverged
    assert list(made.runs) == [("gt_sgd", 7)] and made.runs["gt_sgd", 7].rounds == 2
    _, first, second = made.table().splitlines()
    assert first.split() == ["dsgd"] + ["failed"] * 6 and second.startswith("gt_sgd")
    assert [row.get("failed", 0) for row in made.rows()] == [1, 0]
    assert [run.path.name for run in folder_reader.open_runs([made.save(tmp_path)])] == [
        "gt_sgd-seed7"
    ]
    for batched in (False, True):  # where all fail, so does the comparison
        with without_optimizations(), pytest.raises(ValueError, match=message):
            diamond.compare(quad(), net, {"one": methods["dsgd"]}, 2, seeds=[7], batched=batched)


def test_a_step_size_function_that_raises_fails_its_method_alone(monkeypatch):
    skip_measures(monkeypatch)
    methods = {"mine": diamond.dsgd(lambda t: 1 / 0, 0.2, 3), "theirs": diamond.dsgd(0.05, 0.2, 3)}
    message = "a step size or weight given as a function of the round raised ZeroDivisionError"
    with (
        without_optimizations(),
        pytest.warns(RuntimeWarning, match=f"mine, seed 0, failed: ValueError: {message}"),
    ):
        made = diamond.compare(quad(), ring(4), methods, 2)
    assert list(made.runs) == [("theirs", 0)] and "division by zero" in made.failed["mine", 0]


def test_an_error_before_the_first_run_names_the_method():
    good, given = diamond.dsgd(0.05, 0.2, 3), (quad(), ring(4))
    one_way = diamond.network.random_digraph(4, 0.5, seed=1)
    with pytest.raises(ValueError, match=r"^second: .*: this algorithm needs symm"):
        methods = {"first": diamond.gt_sgd(0.05, 0.2, 3), "second": diamond.extra(0.05)}
        diamond.compare(quad(), one_way, methods, 2)
    with pytest.raises(TypeError, match=r"^second: the algorithm is 'dsgd'"):
        diamond.compare(*given, {"first": good, "second": "dsgd"}, 2)
    with pytest.raises(ValueError, match=r"^rounds = -1 must be 0 or more"):  # not the method's
        diamond.compare(*given, {"first": good}, -1)
    with pytest.raises(TypeError, match=r"^stop = 5: give a dict such as {\"metric\": 0.001}"):
        diamond.compare(*given, {"first": good}, 2, stop=5)


def test_an_error_of_the_callback_is_no_failure_of_a_method(monkeypatch):
    skip_measures(monkeypatch)

    def stop(label, seed, entry):
        raise RuntimeError("enough")

    with without_optimizations(), pytest.raises(RuntimeError, match="enough"):
        diamond.compare(
            quad(), ring(4), {"one": diamond.gt_sgd(0.05, 0.2, 3)}, 2, on_evaluation=stop
        )


def test_it_is_drawn(found, tmp_path):
    pytest.importorskip("matplotlib")
    png, pdf = (tmp_path / "figures" / f"all.{kind}" for kind in ("png", "pdf"))
    for path in (png, pdf):
        assert len(found[0].plot(path).axes) == 2 * 4  # loss and metric, rounds and three costs
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and pdf.read_bytes()[:5] == b"%PDF-"
    with pytest.raises(ValueError, match=r"no figure of the kind 'bmp'; name a file that ends in"):
        found[0].plot(tmp_path / "all.bmp")


def test_costs_to_a_target_are_those_of_the_first_evaluation_that_reaches_it(found):
    made, _ = found
    history = made.runs["DIAMOND", 0].history
    target = float(history["upper_loss"][2])
    rows = made.costs_to_target({"upper_loss": target})
    assert [(row["algorithm"], row["seed"]) for row in rows] == list(made.runs)
    first = int(np.argmax(history["upper_loss"] <= target))
    spent = "samples", "gradients", "hvps", "jvps", "bytes", "seconds"
    assert rows[0]["reached"] and rows[0]["rounds"] == history["round"][first]
    assert [rows[0][name] for name in spent] == [history[name][first] for name in spent]
    assert not rows[3]["reached"] and all(np.isnan(rows[3][name]) for name in ("rounds", *spent))
    assert len(repr(rows).splitlines()) == 5 and "<td>DIAMOND</td>" in rows._repr_html_()
    with pytest.raises(ValueError, match="give a measure to reach"):
        made.costs_to_target({"samples": 10})


def test_runs_stop_at_a_target(found):
    made, _ = found
    target = {"upper_loss": float(made.runs["DIAMOND", 0].history["upper_loss"][2])}
    algorithms = {"DIAMOND": made.algorithms["DIAMOND"]}
    fixed = quad(), ring(4), algorithms, 200, 2, 50
    with without_optimizations():
        stopped = diamond.compare(*fixed, stop=target | {"samples": 1e9})
    rows = stopped.costs_to_target()
    full = [row for row in made.costs_to_target(target) if row["algorithm"] == "DIAMOND"]
    assert stopped.runs["DIAMOND", 0].rounds < 200
    for row, other, run in zip(rows, full, stopped.runs.values()):
        assert row["rounds"] == run.rounds and "upper_loss" in run.message
        assert {**row, "seconds": 0} == {**other, "seconds": 0}
    with pytest.raises(ValueError, match="did you mean metric"):
        diamond.compare(*fixed, stop={"metrik": 1})
    with pytest.raises(TypeError, match=r"give its \.problem"):
        diamond.compare(stopped, *fixed[1:], stop=target)
    with pytest.raises(ValueError, match="leave out stop"):
        diamond.compare(*fixed, stop=target, batched=True)
