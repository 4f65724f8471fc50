"""Files of their own for training, validation and test; text and LIBSVM at sites, from a file."""

import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from tiny_experiment import TINY

from diamond import data
from diamond.config.experiment_file import validate
from diamond.config.validation_errors import BadExperiment

SIZES = {"train": 5, "valid": 4, "test": 3}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Three sites with a table a part; labels of the third are not all in its training rows."""
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    random = np.random.default_rng(0)
    for site in range(3):
        for part, count in SIZES.items():
            marks = ["no", "yes"] if (site, part) != (2, "train") else ["yes"]
            rows = [
                f"{random.normal(50, 15):.3f},{random.normal():.3f},{marks[i % len(marks)]}"
                for i in range(count + site)
            ]
            text = "\n".join(["age,dose,ill", *rows]) + "\n"
            (tmp_path / f"site_{site}_{part}.csv").write_text(text)
    return tmp_path


def made(here, sites=3, **table):
    given = {"kind": "hyperparameter", "label": "ill"} | table
    part = validate(TINY | {"problem": given, "network": f"ring:{sites}"}, here, "x.toml").problem
    return part, part.build()


def refused(here, **table):
    with pytest.raises(BadExperiment) as refusal:
        made(here, **table)
    return str(refusal.value)


def ordered(rows):
    """Features and labels, in an order of their own: a problem shuffles its rows."""
    whole = np.column_stack([rows["a"], rows["b"]])
    return whole[np.lexsort(whole.T)]


PARTS = {part: f"site_{{agent}}_{part}.csv" for part in SIZES}


def test_every_part_has_the_rows_of_its_files(here):
    part, problem = made(here, **PARTS)
    for name, count in SIZES.items():
        assert [len(rows["b"]) for rows in problem.rows[name]] == [count + k for k in range(3)]
        found = data.csv(f"site_1_{name}.csv", "ill")
        wanted = dict(zip("ab", found.train))
        np.testing.assert_array_equal(ordered(problem.rows[name][1]), ordered(wanted))
    assert set(problem.rows["train"][2]["b"].tolist()) == {1}  # yes, though no is not there
    again, _ = made(here, **part.options)  # as config.toml has it
    assert again.options == part.options and len(part.sources) == 9
    few, small = made(here, train=PARTS["train"], valid=PARTS["valid"], scale="standard")
    assert "test" not in small.rows and "shares" not in few.options
    whole = np.concatenate([rows["a"] for rows in small.rows["train"]])
    np.testing.assert_allclose(whole.mean(0), 0, atol=1e-6)


def test_sites_are_matched_by_name_and_lists_by_order(here):
    places = {"west": 1, "east": 0}
    tables = {p: {n: f"site_{k}_{p}.csv" for n, k in places.items()} for p in ("train", "valid")}
    turned = tables | {"valid": dict(reversed(tables["valid"].items()))}
    listed = {part: list(table.values()) for part, table in tables.items()}
    found = [made(here, 2, **given)[1].rows["valid"] for given in (tables, turned, listed)]
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one["a"], two["a"])


def test_what_does_not_fit_is_named(here):
    for table, message in (
        ({"train": "site_{agent}_train.csv"}, "problem.valid: is missing: train and valid have"),
        (PARTS | {"dataset": "digits"}, "problem.train: dataset has the rows of all parts"),
        (PARTS | {"shares": [0.4, 0.4, 0.2]}, "problem.shares: is for one dataset; leave it out"),
        (PARTS | {"agents": 4}, "problem.agents: is 4, but there are 3 sites"),
        (PARTS | {"labels": ["no", "maybe"]}, "0: label 'yes' is none of no, maybe; correct it"),
        ({}, "problem.dataset: is missing: name a data set or files"),
        (PARTS | {"valid": "nowhere_{agent}.csv"}, "problem.valid: no file matches"),
    ):
        assert message in refused(here, **table)
    bad = (here / "site_1_valid.csv").read_text().splitlines()
    bad[2] = "old,1,no"
    (here / "site_1_valid.csv").write_text("\n".join(bad))
    message = refused(here, **PARTS)
    assert (
        "site 1: " in message and "site_1_valid.csv: row 3, column 'age': 'old' is not" in message
    )
    (here / "site_1_valid.csv").write_text("age,ill\n1,no\n")
    assert "site_1_valid.csv has the features age, " in refused(here, **PARTS)
    (here / "site_1_valid.csv").unlink()
    (here / "site_2_valid.csv").unlink()
    message = refused(here, **PARTS)
    assert "problem.valid: has no file of site 1, which train has; add it" in message


def test_text_is_hashed_at_every_site(here):
    rows = {"north": "yes good film\nno bad plot\nyes good plot\n", "south": "no bad film\n" * 3}
    for site, text in rows.items():
        (here / f"{site}.txt").write_text(text)
        label_and_words = (row.split(" ", 1) for row in text.splitlines())
        lines = [f'{label},"{words}"' for label, words in label_and_words]
        (here / f"{site}.csv").write_text("\n".join(["mark,words", *lines]) + "\n")
    plain = made(here, 2, dataset="{agent}h.txt", hashed=8)[1]
    table = made(here, 2, dataset="{agent}h.csv", hashed=8, text="words", label="mark")[1]
    assert [name.split(" ")[0] for name in table.names] == [f"words#{k}" for k in range(8)]
    for one, two in zip(plain.rows["train"], table.rows["train"], strict=True):
        np.testing.assert_array_equal(one["a"], two["a"])
        np.testing.assert_allclose(np.linalg.norm(one["a"], axis=1), 1, rtol=1e-6)
    message = refused(here, dataset="north.txt", hashed=0)
    assert "hashed: must be a whole number, 1 or more" in message
    for kind in ("support_vectors", "meta_learning"):
        assert made(here, 2, kind=kind, dataset="{agent}h.txt", hashed=8)[1].agents == 2


@pytest.mark.parametrize("kind", ["hyperparameter", "support_vectors", "regression"])
def test_penalties_take_libsvm_files(here, kind):
    """The width of all parts is that of the widest."""
    for part, text in {"train": "1 1:2\n-1 2:1\n", "valid": "1 4:0.5\n-1 1:1\n"}.items():
        for site in (0, 1):
            (here / f"{part}_{site}.svm").write_text(text * 2)
    given = {part: f"{part}_{{agent}}.svm" for part in ("train", "valid")}
    problem = made(here, 2, kind=kind, **given)[1]
    labels = [1, -1] if kind == "regression" else [1, 0]
    wanted = {"a": [[2, 0, 0, 0], [0, 1, 0, 0]] * 2, "b": labels * 2}
    np.testing.assert_array_equal(ordered(problem.rows["train"][1]), ordered(wanted))
