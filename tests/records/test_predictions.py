"""Predictions of new rows: the same from a run, its folder, and coefficients of the table."""

import asyncio
import csv
import json

import jax
import numpy as np
import pytest
from commands import command, result
from crash_cluster import LIMITS
from fast_compilation import skip_loss_checks, skip_measures, without_optimizations
from lockstep_agents import build_algorithm

import diamond
from diamond.config.site_problem import read_site_problem
from diamond.data import DataError
from diamond.gallery.stored_predictions import describe_model, stored_prediction
from diamond.problem.prediction import LinearPrediction
from diamond.records.folder_writer import Writer
from diamond.records.manifest import RunOrigin
from diamond.records.predictor import problem_predictor
from diamond.sites.memory.site_run_folder import SiteRunFolder
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

SITES = ["north", "south"]
TOML = """
rounds = 4
every = 4
network = "ring:2"
[problem]
kind = "hyperparameter"
dataset = {north = "sites/north.csv", south = "sites/south.csv"}
label = "ill"
features = ["age", "sex", "seen"]
levels = {sex = ["F", "M"]}
missing_values = "mean"
scale = "standard"
intercept = true
[algorithm]
name = "dsgd"
batch = 4
alpha = 0.1
beta = 0.3
hypergradient = {name = "neumann", terms = 2}
"""
NEW = "patient,age,sex,seen\na,70,F,2024-03-01\nb,40,M,2024-01-01\nc,,M,2024-02-02\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Two sites with rows, and a table of new rows."""
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    skip_measures(monkeypatch)
    (tmp_path / "sites").mkdir()
    for seed, site in enumerate(SITES):
        random = np.random.default_rng(seed)
        rows = [
            f"{random.normal(50, 9):.1f},{random.choice(['F', 'M'])},2024-01-{day:02d},"
            + random.choice(["no", "yes"])
            for day in range(1, 25)
        ]
        rows[3] = rows[3].replace(rows[3].split(",")[0], "", 1)
        (tmp_path / "sites" / f"{site}.csv").write_text("age,sex,seen,ill\n" + "\n".join(rows))
    (tmp_path / "new.csv").write_text(NEW)
    (tmp_path / "two.toml").write_text(TOML)
    with without_optimizations():
        yield tmp_path


def table_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def log_odds_by_hand(coefficients, fill):
    """The log odds of the new rows, from the coefficients in units of the table."""
    days = np.array([19783, 19723, 19755])
    ages, is_man = np.array([70, 40, fill]), np.array([0, 1, 1])
    sex = np.where(is_man, coefficients["sex=M"], coefficients["sex=F"])
    return (
        coefficients["age"] * ages + sex + coefficients["seen"] * days + coefficients["intercept"]
    )


def test_a_run_its_folder_and_its_coefficients_predict_the_same(here):
    command("run", "two.toml")
    (here / "runs/two/preparation.json").unlink()  # as in folders written before
    lines = TOML.replace('scale = "standard"\n', "").splitlines()
    lines.insert(lines.index("[problem]") + 1, 'scale = "standard"')  # keys in another order
    (here / "two.toml").write_text("\n".join(lines))
    command("run", "two.toml", "--rounds", "8")
    assert not (here / "runs/two-2").exists()
    found = result("predict", "runs/two", "new.csv", "--site", "south")
    assert found == {"file": "runs/two/predictions.csv", "rows": 3}
    rows = table_of(here / "runs/two/predictions.csv")
    assert list(rows[0]) == ["patient", "prediction", "no", "yes"]
    assert [row["patient"] for row in rows] == ["a", "b", "c"]
    values = np.array([[float(row[name]) for name in ("no", "yes")] for row in rows])
    assert [row["prediction"] for row in rows] == [["no", "yes"][k] for k in values.argmax(1)]
    run = diamond.load("runs/two")
    for agent in ("south", 1, "1"):
        np.testing.assert_allclose(run.predict("new.csv", agent), values, rtol=1e-6)
    command("export", "runs/two", "--to", "csv")
    exported = table_of(here / "runs/two/answer/coefficients.csv")
    coefficients = {row["entry"]: float(row["south"]) for row in exported}
    for name, value in run.coefficients("south").items():
        np.testing.assert_allclose(value, coefficients[name], rtol=1e-6)
    preparation = run.predictor.preparation
    by_hand = log_odds_by_hand(coefficients, preparation.fills[1][0])
    np.testing.assert_allclose(np.log(values[:, 1] / values[:, 0]), by_hand, rtol=1e-3, atol=1e-4)
    assert "Coefficients: log odds of yes against no, per" in command("show", "runs/two").stdout
    exported_json = (here / "runs/two/answer/preparation.json").read_text()
    assert exported_json == preparation.to_json()
    (here / "sites" / "south.csv").unlink()  # the model needs no rows
    with pytest.warns(RuntimeWarning, match="cannot be rebuilt"):
        np.testing.assert_allclose(
            diamond.load("runs/two").predict("new.csv", 1), values, rtol=1e-6
        )
    for change, message in (
        (("--site", "west"), "no agent 'west'; there are north, south"),
        ((), "name one of north, south"),
        (("--site", "2"), "no agent '2'"),
    ):
        assert message in command("predict", "runs/two", "new.csv", *change, code=2).stderr
    (here / "new.csv").write_text(NEW.replace(",F,", ",W,"))
    refusal = command("predict", "runs/two", "new.csv", "--site", "north", code=2).stderr
    assert "new.csv: row 2, column 'sex': 'W' is none of the levels F, M" in refusal
    stored = json.loads(preparation.to_json())
    for damage, message in (
        ({"fills": stored["fills"][:1]}, "fills of 1 agents, the run has 2"),
        ({"model": {"kind": "quadratic"}}, "no preparation.json of a problem that predicts"),
        ({"model": {"kind": "meta_learning"}}, "no model that predicts"),
        (
            {
                "columns": stored["columns"][:1],
                "mean": [0.0],
                "deviation": [1.0],
                "fills": [fill[:1] for fill in stored["fills"]],
            },
            "the model does not take these rows",
        ),
        ({"mean": None}, "not a preparation of rows"),
    ):
        (here / "runs/two/preparation.json").write_text(json.dumps(stored | damage))
        (here / "new.csv").write_text(NEW)
        stderr = command("predict", "runs/two", "new.csv", "--site", "1", code=2).stderr
        assert message in " ".join(stderr.split())
    (here / "runs/two/preparation.json").unlink()
    with pytest.warns(RuntimeWarning), pytest.raises(ValueError, match="problem has no predict"):
        diamond.load("runs/two").predict("new.csv", 0)
    for file in (here / "runs/two/checkpoint").iterdir():
        file.unlink()
    (here / "runs/two/preparation.json").write_text(preparation.to_json())
    stderr = command("predict", "runs/two", "new.csv", "--site", "1", code=2).stderr
    assert "no whole checkpoint; `diamond resume runs/two`" in " ".join(stderr.split())


def test_a_site_predicts_from_its_own_folder(here):
    options = {"kind": "hyperparameter", "dataset": "sites/{agent}.csv", "label": "ill"}
    options |= {"labels": ["no", "yes"], "levels": {"sex": ["F", "M"]}, "missing_values": "mean"}
    options |= {
        "features": ["age", "sex", "seen"],
        "scale": {"age": [50.0, 9.0], "seen": [19735.0, 7.0]},
    }
    problems = [
        read_site_problem(options, site, k, None, base=here).build() for k, site in enumerate(SITES)
    ]
    network, algorithm = diamond.network.ring(2), build_algorithm("gt_sgd")

    async def work(wire, number):
        name, agent = SITES[number], Agent(problems[number], network, algorithm, number)
        with Writer(here / name) as writer:
            transport = wire.transport(number)
            node = Node(agent, 2, transport, here / name, 2, LIMITS, run_inline)
            origin = RunOrigin(name, "two", "hyperparameter", "gt_sgd", "gt_sgd", {}, "", {})
            folder = SiteRunFolder(writer, node, origin, "rounds = 2\n")
            node.on_round, wire.nodes[number] = folder.record_evaluation, node
            with folder.record_outcome():
                return await node.run()

    async def both():
        wire = InProcessNetwork()
        return await asyncio.gather(work(wire, 0), work(wire, 1))

    states = run_simulated(both())
    y = np.asarray(states[1].state.y)
    command("predict", "south", "new.csv", "-o", "p.csv")
    values = np.array([[float(row[k]) for k in ("no", "yes")] for row in table_of(here / "p.csv")])
    rows = problems[1].preparation.prepare("new.csv")
    np.testing.assert_allclose(values, jax.nn.softmax(rows @ y), rtol=1e-5)
    run = diamond.load("south")
    np.testing.assert_allclose(run.predict("new.csv"), values, rtol=1e-5)
    fill = problems[1].preparation.fills[0][0]
    by_hand = log_odds_by_hand(run.coefficients(), fill)
    np.testing.assert_allclose(np.log(values[:, 1] / values[:, 0]), by_hand, rtol=1e-3, atol=1e-4)
    assert "intercept" in command("show", "south").stdout


def test_every_problem_on_rows_predicts_as_its_metric_measures():
    random = np.random.default_rng(0)
    draw = lambda: [{"a": random.normal(size=(9, 4)), "b": random.integers(0, 3, 9)} for _ in "ab"]
    parts = draw(), draw(), draw()
    for kind in (
        "distillation",
        "fair_weights",
        "hyper_cleaning",
        "hyperparameter",
        "meta_learning",
        "network_cleaning",
        "regression",
        "support_vectors",
    ):
        options = {"activation": "relu"} if kind == "meta_learning" else {}
        options |= {"shape": (2, 2, 1)} if kind == "network_cleaning" else {}
        classes = {} if kind == "regression" else {"classes": 3}
        problem = getattr(diamond.gallery, kind)(*parts, **classes, **options)
        noise = lambda leaf: leaf + random.normal(size=leaf.shape).astype(np.float32)
        x, y = (jax.tree.map(noise, level) for level in problem.start(0))
        rows = parts[2][0]
        values = np.asarray(problem.predict(x, y, {"a": rows["a"]}))
        again = stored_prediction(describe_model(kind, options), 4, 3)
        np.testing.assert_array_equal(again(x, y, rows), values)
        if kind == "regression":
            expected = float(problem.metrics["absolute_error"](x, y, rows))
            assert np.mean(np.abs(values - rows["b"])) == pytest.approx(expected, rel=1e-5)
            continue
        assert np.mean(values.argmax(1) == rows["b"]) == pytest.approx(
            problem.metrics["accuracy"](x, y, rows)
        )
        if kind not in ("distillation", "support_vectors"):
            np.testing.assert_allclose(values.sum(1), 1, rtol=1e-5)
            if kind != "network_cleaning":
                chosen = np.take_along_axis(values, rows["b"][:, None], 1)
                assert -np.mean(np.log(chosen)) == pytest.approx(
                    float(problem.upper(x, y, rows)), rel=1e-4
                )


def test_problems_from_files_say_what_happened_to_their_rows_and_what_is_wrong(here):
    table = {"dataset": [here / "sites/north.csv", "sites/south.csv"], "label": "ill"}
    table |= {"missing_values": "mean", "categories": "one_hot"}
    with pytest.warns(UserWarning) as notes:
        problem = diamond.problem_from_files("hyperparameter", **table, intercept=True)
    texts = [str(note.message) for note in notes]
    assert any("the levels of sex were united over the sites" in text for text in texts)
    assert problem.names == ("age", "sex=F", "sex=M", "seen")
    with pytest.raises(ValueError, match="lable: is no option"):
        diamond.problem_from_files("hyperparameter", **table, lable="ill")


def test_what_cannot_predict_says_why():
    problem = diamond.gallery.quadratic(agents=2, upper=2, lower=2, rows=6)
    assert problem_predictor(problem) is None
    problem.predict = lambda x, y, rows: rows["a"] @ y
    predictor, y = problem_predictor(problem), np.ones((2, 2))
    values = predictor.predictions(y, y, {"a": np.eye(2)}, "agent 1")
    np.testing.assert_array_equal(values, [1, 1])
    with pytest.raises(DataError, match="does not take these rows"):
        predictor.predictions(y, y, {"a": np.zeros((1, 3))}, 0)
    with pytest.raises(ValueError, match="the model is not linear"):
        predictor.coefficients(y, 0)
    problem.predict = LinearPrediction()
    with pytest.raises(DataError, match="were not read from a table"):
        problem_predictor(problem).coefficients(y, 0)
