"""Tables of four hospitals with gaps: filled by each for itself, and every name in the answers."""

import csv

import numpy as np
import pytest
from commands import command, result
from fast_compilation import skip_loss_checks, skip_measures, without_optimizations
from tiny_experiment import TINY

import diamond
from diamond.config.experiment_file import validate
from diamond.config.site_problem import read_site_problem
from diamond.config.validation_errors import BadExperiment
from diamond.report.report_payload import collect_report_data

CITIES = ["north", "east", "south", "west"]
TOML = """
rounds = 2
every = 2
network = "ring:4"
[problem]
kind = "regression"
dataset = "{agent}.csv"
label = "days"
features = ["age", "dose"]
missing_values = "mean"
[algorithm]
name = "dsgd"
batch = 2
alpha = 0.01
beta = 0.01
hypergradient = {name = "neumann", terms = 2}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Ten rows each; ages are missing in rows 2 and 5, a dose in row 7 of the east alone."""
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    random = np.random.default_rng(0)
    for k, city in enumerate(CITIES):
        ages, doses = random.normal(50 + k, 9, 10), random.normal(size=10)
        rows = [
            [f"p{i}", f"{a:.2f}", f"{d:.2f}", f"{a + d:.2f}"]
            for i, (a, d) in enumerate(zip(ages, doses))
        ]
        rows[0][1] = rows[3][1] = ""
        rows[5][2] = "NA" if city == "east" else rows[5][2]
        lines = [",".join(row) for row in [["id", "age", "dose", "days"], *rows]]
        (tmp_path / f"{city}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "four.toml").write_text(TOML)
    return tmp_path


def given(**table):
    files = [f"{city}.csv" for city in CITIES]
    known = {"kind": "regression", "dataset": files, "label": "days", "features": ["age", "dose"]}
    return known | table


def made(here, **table):
    raw = TINY | {"problem": given(**table), "network": "ring:4"}
    return validate(raw, here, "x.toml").problem.build()


def refused(here, **table):
    with pytest.raises(BadExperiment) as refusal:
        made(here, **table)
    return str(refusal.value)


def test_every_bad_file_is_named_with_the_key(here):
    message = refused(here)
    for city in CITIES:
        assert f"{city}.csv: row 2, column 'age': '' is a missing value" in message
    assert message.count('missing_values = "drop"') == 4
    message = refused(here, features=["id", "age"])
    assert message.count("column 'id' ('p0', ...) holds text") == 4
    assert 'features = ["age"]' in message
    message = refused(here, missing_values="median")
    assert "missing_values: must be one of refuse, drop, mean or a number or a table" in message
    assert "no feature 'weight'" in refused(here, missing_values={"weight": 1.0})


def test_an_agent_fills_by_the_mean_of_its_own_training_rows(here):
    plain = made(here, missing_values=-1e6)
    found = made(here, missing_values="mean")
    for k in range(4):
        train = plain.rows["train"][k]["a"]
        known = train[:, 0] != -1e6
        mean = train[known, 0].mean(dtype=float)
        for part in ("train", "valid", "test"):
            before, after = (problem.rows[part][k]["a"] for problem in (plain, found))
            np.testing.assert_allclose(after[before[:, 0] == -1e6, 0], mean, rtol=1e-6)
            np.testing.assert_array_equal(after[before > -1e6], before[before > -1e6])
    assert found.notes[:2] == (
        "north: missing values filled by the mean of its training rows: 2 of age",
        "east: missing values filled by the mean of its training rows: 2 of age and 1 of dose",
    )
    fixed = {"age": 50.0, "dose": 0.0}
    scaled = made(here, missing_values=fixed, scale={"age": [50.0, 10.0]})
    assert sum(np.sum(scaled.rows[part][0]["a"][:, 0] == 0) for part in scaled.rows) == 2
    assert found.agent_names == tuple(CITIES)


def test_rows_are_dropped_and_a_site_on_its_own_has_the_same(here):
    for rule in ("drop", "mean", 0.0):
        whole = made(here, missing_values=rule)
        table = given(missing_values=rule, dataset="{agent}.csv")
        for k in (0, 1):
            alone = read_site_problem(table, CITIES[k], k, None, base=here).build()
            for part in whole.rows:
                for leaf in "ab":
                    np.testing.assert_array_equal(
                        alone.rows[part][0][leaf], whole.rows[part][k][leaf]
                    )
    dropped = made(here, missing_values="drop")
    assert sum(dropped.counts(part) for part in dropped.rows).tolist() == [8, 7, 8, 8]
    assert dropped.notes[1] == "east: 3 rows dropped for missing values (2 of age and 1 of dose)"
    found = result(
        "data",
        "{agent}.csv",
        "--label",
        "days",
        "--features",
        "age,dose",
        "--real",
        "--missing-values",
        "mean",
    )
    assert found["missing"]["east"] == {"age": 2, "dose": 1}


def test_agents_features_and_penalties_have_their_names_everywhere(here, monkeypatch):
    skip_measures(monkeypatch)
    with without_optimizations():
        text = command("run", "four.toml")
    assert "east: missing values filled by the mean" in text.stderr
    shown = command("show", "runs/four").stdout
    assert "x: log-penalty\nentry  mean of the agents\n" in shown
    # Of a pattern, sites are in the order of their names.
    assert "agents: east, north, south, west" in shown and "rows: east: missing values" in shown
    paths = command("export", "runs/four", "--to", "csv").stdout.split()
    x, y, _, coefficients, _ = (
        list(csv.reader((here / path).read_text().splitlines())) for path in paths
    )
    assert coefficients[0] == y[0] and [row[0] for row in coefficients[1:]] == [
        *["age", "dose", "intercept"]
    ]
    assert x[0] == ["entry", "quantity", "mean", "east", "north", "south", "west"]
    assert [row[:2] for row in x[1:]] == [["age", "log-penalty"], ["dose", "log-penalty"]]
    assert y[0] == ["entry", "east", "north", "south", "west"]
    assert sorted(row[0] for row in y[1:]) == ["age", "dose", "intercept"]
    run = diamond.load("runs/four")
    weights = {row[0]: [float(v) for v in row[1:]] for row in y[1:]}
    np.testing.assert_array_equal(weights["dose"], np.asarray(run.y["w"])[:, 1])
    assert command("report", "runs/four").stdout.strip().endswith("report.html")
    found = collect_report_data([here / "runs/four"])
    assert found["networks"][0]["sites"] == ["east", "north", "south", "west"]
    sections = found["runs"][0]["answer"]["sections"]
    assert sections[0]["title"] == "x: log-penalty"
    models = found["runs"][0]["answer"]["models"]
    assert models["agents"] == ["east", "north", "south", "west"]
    assert [*models["values"]] == ["age", "dose", "intercept"]
    assert len(found["problems"][0]["notes"]) == 4


def test_features_without_words_do_not_look_like_findings(here):
    for city in CITIES:
        (here / f"{city}.txt").write_text("good warm bright\nbad cold dull\n" * 5)
    problem = made(
        here, kind="hyperparameter", dataset=[f"{c}.txt" for c in CITIES], hashed=16, features=None
    )
    used = np.any([np.any(rows["a"] != 0, 0) for rows in problem.rows["train"]], 0)
    marks = [name.endswith(" (no words)") for name in problem.names]
    assert marks == (~used).tolist() and 0 < sum(marks) < 16
    assert f"{sum(marks)} of the 16 features of text have no words" in problem.notes[-1]
