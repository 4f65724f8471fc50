"""Data in files: a file a site, columns and arrays of sites, targets to regress on, scaling."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import command, result
from fast_compilation import skip_loss_checks
from tiny_experiment import TINY

from diamond import data
from diamond.config.experiment_file import validate
from diamond.config.validation_errors import BadExperiment
from diamond.data import DataError
from diamond.data.standardize import federated_scale

CITIES = {"north": 20, "east": 30, "south": 25, "west": 10}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Four files of a table, and the whole of it."""
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    random, whole = np.random.default_rng(0), []
    for city, count in CITIES.items():
        rows = [
            f"{random.normal():.3f},{100 * random.normal():.1f},{i % 2},{random.normal():.3f}"
            for i in range(count)
        ]
        (tmp_path / f"{city}.csv").write_text("\n".join(["age,dose,ill,days", *rows]) + "\n")
        whole += [f"{row},{city}" for row in rows]
    (tmp_path / "other.csv").write_text("age,ill\n1,0\n2,1\n")
    (tmp_path / "whole.csv").write_text("\n".join(["age,dose,ill,days,city", *whole]) + "\n")
    return tmp_path


def problem(here, **table):
    experiment = validate(TINY | {"problem": {"kind": "hyperparameter", **table}}, here, "x.toml")
    return experiment, experiment.problem.build()


def counts(made):
    return sum(made.counts(part) for part in made.rows).tolist()


def recorded(experiment, here):
    """The problem as config.toml has it, and the same read again."""
    text = experiment.to_toml(here / "runs")
    (here / "runs").mkdir(exist_ok=True)
    return tomllib.loads(text)["problem"], validate(
        tomllib.loads(text), here / "runs", "config.toml"
    )


FILES = [f"{city}.csv" for city in CITIES]


@pytest.mark.parametrize("kind", ["hyperparameter", "support_vectors"])
def test_entries_of_y_have_the_names_of_features_and_classes(here, kind):
    (here / "named.csv").write_text("age,dose,ill\n" + "1,2,no\n2,1,yes\n3,1,no\n" * 4)
    given = {"kind": kind, "dataset": "named.csv", "label": "ill", "agents": 1}
    _, made = problem(here, **given)
    weights = made.y_names["" if kind == "hyperparameter" else "['w']"]
    assert weights == [["age, no", "age, yes"], ["dose, no", "dose, yes"]]
    if kind == "support_vectors":
        assert made.y_names["['b']"] == ["intercept, no", "intercept, yes"]


@pytest.mark.parametrize("dataset, sizes", [
    (FILES, list(CITIES.values())),
    ("*st.csv", [30, 10]),
])  # fmt: skip
def test_a_file_is_a_site(here, dataset, sizes):
    """In the order of a list; by name, of a pattern."""
    experiment, made = problem(here, dataset=dataset, label="ill")
    assert counts(made) == sizes and made.names == ("age", "dose", "days")
    problem_table, again = recorded(experiment, here)
    assert problem_table["agents"] == len(sizes) and "partition" not in problem_table
    assert problem_table["dataset"] == (
        [f"../{name}" for name in FILES] if dataset is FILES else ["../east.csv", "../west.csv"]
    )
    assert counts(again.problem.build()) == sizes


def test_a_column_and_an_array_of_sites_are_agents(here):
    features = np.arange(24.0).reshape(12, 2)
    sites = np.array(["b", "a", "a"] * 4)
    np.savez(here / "own.npz", features=features, labels=np.arange(12) % 2, sites=sites)
    for table, sizes in (
        ({"dataset": "whole.csv", "label": "ill", "site": "city"}, [30, 20, 25, 10]),
        ({"dataset": "own.npz"}, [8, 4]),
        ({"dataset": "own.npz", "partition": "iid", "agents": 3}, [4, 4, 4]),
    ):
        experiment, made = problem(here, **table)
        assert counts(made) == sizes
        problem_table, again = recorded(experiment, here)
        assert problem_table["agents"] == len(sizes) and ("partition" in problem_table) == (
            "partition" in table
        )
        assert counts(again.problem.build()) == sizes


def test_what_was_used_is_recorded(here):
    """Of rows that are dealt out, by whom and how; of a short form, all of it."""
    experiment, made = problem(here, dataset="north.csv", label="ill", agents=2)
    problem_table, _ = recorded(experiment, here)
    assert (problem_table["agents"], problem_table["partition"]) == (
        2,
        {"kind": "iid"},
    ) and made.agents == 2
    short, _ = problem(here, dataset="north.csv", label="ill", agents=2, partition="by_label:2")
    assert recorded(short, here)[0]["partition"] == {"kind": "by_label", "shards": 2}
    assert recorded(problem(here, dataset="digits")[0], here)[0]["agents"] == 9


@pytest.mark.parametrize("table, message", [
    ({"dataset": FILES, "site": "city"}, "problem.site: each file is a site already; leave it out"),
    ({"dataset": FILES, "partition": "iid"}, "problem.partition: the sites determine who has"),
    ({"dataset": "whole.csv", "site": "city", "partition": "iid"}, "problem.partition: the sites"),
    ({"dataset": FILES, "agents": 3}, "agents: is 3, but there are 4 sites (north, east, south, "),
    ({"dataset": []}, "problem.dataset: is an empty list"),
    ({"dataset": ["north.csv", "nroth.csv"]}, "no data set 'nroth.csv' and no such file"),
    ({"dataset": "*.tsv"}, "problem.dataset: no file matches '*.tsv'"),
    ({"dataset": ["north.csv", "other.csv"]}, "other.csv has the features age, "),
    ({"dataset": ["north.csv", "north.csv"]}, "is there twice"),
    ({"dataset": "whole.csv", "label": "sick"}, "problem.dataset: "),
    ({"dataset": "north.csv", "partition": "by_label:1,2"}, "gives more numbers than by_label"),
    ({"dataset": "north.csv", "scale": "robust"}, "must be one of none, standard"),
    ({"dataset": "north.csv", "label": "age"}, "read it as real (the problem regression does)"),
])  # fmt: skip
def test_what_does_not_fit_is_said_before_anything_runs(here, table, message):
    with pytest.raises(BadExperiment) as found:
        validate(
            TINY | {"problem": {"kind": "hyperparameter", "label": "ill"} | table}, here, "x.toml"
        )
    assert message in str(found.value)


def test_labels_of_all_files_are_classes_of_all():
    rows = np.zeros((2, 1)), np.array([0, 1], np.int32)
    one = data.Dataset("a", rows, None, ("2", "10"), (1,), files=(Path("x/a.csv"),))
    two = replace(one, classes=("1", "10"), files=(Path("y/a.csv"),))
    found = data.join_files([one, two])
    assert found.classes == ("1", "2", "10") and found.train[1].tolist() == [1, 2, 0, 2]
    assert found.places == ("x/a", "y/a") and found.sites.tolist() == ["x/a"] * 2 + ["y/a"] * 2
    named = data.join_files(
        [replace(one, classes=("no", "yes")), replace(two, classes=("ill", "no"))]
    )
    assert named.classes == ("ill", "no", "yes")


def test_targets_are_numbers_where_the_problem_regresses(here):
    _, made = problem(here, kind="regression", dataset=FILES, label="days")
    assert made.names == ("age", "dose", "ill") and set(made.metrics) == {
        "absolute_error",
        "test_loss",
    }
    rows = np.concatenate([made.rows[part][0]["b"] for part in made.rows])
    assert rows.dtype == np.float32 and len(np.unique(rows)) > 15
    x, y = made.start(0)
    assert x.shape == (3,) and y["w"].shape == (3,) and y["b"].shape == ()
    np.savez(here / "own.npz", features=np.eye(6), labels=np.linspace(0, 1, 6))
    assert data.npz("own.npz", real=True).train[1].dtype == np.float32
    (here / "own.svm").write_text("0.5 1:2\n-1.25 2:1\n")
    assert data.libsvm("own.svm", real=True).train[1].tolist() == [0.5, -1.25]
    (here / "torn.csv").write_text("a,days\n1,soon\n2,3\n")
    with pytest.raises(DataError, match=r"row 2, column 'days': 'soon' is not a finite number"):
        data.csv("torn.csv", "days", real=True)
    with pytest.raises(DataError, match="digits has classes"):
        problem(here, kind="regression", dataset="digits")


def test_scaling_is_by_the_training_rows_of_all(here):
    a = np.array([[1.0, 5.0], [3.0, 5.0], [99.0, 7.0]], np.float32)
    np.testing.assert_allclose(federated_scale([a[:1], a[1:2]])(a), [[-1, 0], [1, 0], [97, 2]])
    _, made = problem(here, dataset=FILES, label="ill", scale="standard")
    train = np.concatenate([rows["a"] for rows in made.rows["train"]])
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(train.std(0), 1, atol=1e-6)


def test_the_command_takes_what_files_take(here):
    found = result("data", *FILES, "--label", "ill")
    assert found["names"] == list(CITIES) and [sum(own) for own in found["agents"]] == [
        *CITIES.values()
    ]
    text = command("data", "*th.csv", "--label", "days", "--real").stdout
    assert "mean" in text and "north" in text and "south" in text
    short = ("--partition", "dirichlet:concentration=5", "--agents", "2", "--label", "ill")
    table = ("--partition", '{kind = "dirichlet", concentration = 5}', *short[2:])
    assert result("data", "north.csv", *short) == result("data", "north.csv", *table)
    assert result("data", "whole.csv", "--label", "ill", "--site", "city")["names"][0] == "east"
