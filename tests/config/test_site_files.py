"""A file a site: patterns, tables, columns by name, scales told, and files that are wrong."""

import numpy as np
import pytest
from commands import result
from fast_compilation import skip_loss_checks
from tiny_experiment import TINY

from diamond import data
from diamond.config.experiment_file import validate
from diamond.config.validation_errors import BadExperiment
from diamond.data import DataError
from diamond.data.standardize import federated_scale, parse_scale

HEAD = "name,age,dose,ill,days"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Eleven numbered tables with a column of names."""
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    random = np.random.default_rng(0)
    for site in range(11):
        a, b = random.normal(50, 15, 10), random.normal(site, 3, 10)
        rows = [f"p{i},{u:.2f},{v:.2f},{i % 2},{u + v:.2f}" for i, (u, v) in enumerate(zip(a, b))]
        (tmp_path / f"site_{site}.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    return tmp_path


def problem(here, agents=11, **table):
    given = {"kind": "regression", "label": "days", "features": ["age", "dose"]} | table
    raw = TINY | {"problem": given, "network": f"ring:{agents}"}
    part = validate(raw, here, "x.toml").problem
    return part, part.build()


def refused(here, **table):
    with pytest.raises(BadExperiment) as refusal:
        problem(here, **table)
    return str(refusal.value)


def test_a_pattern_is_its_files_in_the_order_of_their_numbers(here):
    part, made = problem(here, dataset="site_{agent}.csv")
    assert list(part.options["dataset"]) == [str(k) for k in range(11)] and made.agents == 11
    assert made.names == ("age", "dose")
    again, _ = problem(here, **part.options | {"kind": "regression"})  # as config.toml has it
    assert again.options == part.options
    (here / "site_4.csv").unlink()
    assert "none numbered 4" in refused(here, dataset="site_{agent}.csv")
    assert "no file matches" in refused(here, dataset="place_{agent}.csv")
    assert "more than once" in refused(here, dataset="{agent}_{agent}.csv")


def test_a_table_names_the_sites_and_a_pattern_may_too(here):
    _, made = problem(here, 2, dataset={"west": "site_1.csv", "east": "site_0.csv"})
    _, listed = problem(here, 2, dataset=["site_1.csv", "site_0.csv"])
    for own, same in zip(made.rows["train"], listed.rows["train"], strict=True):
        np.testing.assert_array_equal(own["a"], same["a"])
    for name, k in {"south": 3, "north": 2}.items():
        (here / f"city_{name}.csv").write_text((here / f"site_{k}.csv").read_text())
    found = result(
        "data", "city_{agent}.csv", "--label", "days", "--features", "dose,age", "--real"
    )
    assert found["names"] == ["north", "south"] and found["features"] == 2
    one_by_one = "--features", "dose", "--features", "age", "--label", "days", "--real"
    assert result("data", "city_{agent}.csv", *one_by_one) == found
    assert "empty table" in refused(here, dataset={})


def test_columns_are_found_by_name_wherever_they_stand(here):
    rows = (here / "site_0.csv").read_text().splitlines()
    turned = [",".join(reversed(row.split(","))) for row in rows]
    (here / "site_0.csv").write_text("\n".join(turned) + "\n")
    _, made = problem(here, dataset="site_{agent}.csv")
    assert made.rows["train"][0]["a"][:, 0].mean() > 20  # age first
    message = refused(here, dataset="site_{agent}.csv", features=["age", "weight"])
    assert "site_0.csv: no column 'weight'; there are days, ill" in message
    assert "cannot be a feature too" in refused(here, dataset="site_1.csv", features=["days"])


def test_what_is_wrong_is_named_by_file_row_and_column(here):
    text = (here / "site_3.csv").read_text().splitlines()
    for cell, message in (
        ("", "'' is a missing value; drop these rows by missing_values"),
        ("high", "'high' is not a finite number"),
    ):
        bad = text[4].split(",")
        bad[2] = cell
        (here / "site_3.csv").write_text("\n".join([*text[:4], ",".join(bad), *text[5:]]))
        found = refused(here, dataset="site_{agent}.csv")
        assert f"site_3.csv: row 5, column 'dose': {message}" in found
    (here / "a.csv").write_text("age,days\n1,2\n")
    (here / "b.csv").write_text("dose,days\n1,2\n")
    with pytest.raises(DataError, match=r"site south: b.csv has the features dose, a.csv has age"):
        data.join_files([data.csv(f"{k}.csv", "days", real=True) for k in "ab"], ["north", "south"])


def test_a_scale_is_found_from_sums_or_told(here):
    random = np.random.default_rng(1)
    sites = [random.normal(5, 3, (n, 2)) for n in (4, 7, 1)]
    whole = np.concatenate(sites)
    found = federated_scale(sites)
    np.testing.assert_allclose(found.mean, whole.mean(0))
    np.testing.assert_allclose(found.deviation, whole.std(0))
    _, plain = problem(here, dataset="site_{agent}.csv")
    _, made = problem(here, dataset="site_{agent}.csv", scale={"age": [50.0, 15.0]})
    before, after = (p.rows["train"][2]["a"] for p in (plain, made))
    np.testing.assert_allclose(after[:, 0], (before[:, 0] - 50) / 15, rtol=1e-5)
    np.testing.assert_array_equal(after[:, 1], before[:, 1])
    for scale, message in (
        ({"weight": [0.0, 1.0]}, "no feature 'weight'; there are age, dose"),
        ({"age": [0.0, 0.0]}, "a deviation above 0"),
    ):
        assert message in refused(here, dataset="site_{agent}.csv", scale=scale)
    with pytest.raises(DataError, match="there are none"):
        parse_scale({"age": (0.0, 1.0)}, ())


def test_sites_without_headers(here):
    (here / "one.txt").write_text("1 1:2 3:1\n-1 1:1\n" * 3)
    (here / "two.txt").write_text("1 1:2\n-1 2:1\n" * 3)
    given = {"kind": "hyperparameter", "dataset": ["one.txt", "two.txt"], "label": "label"}
    raw = TINY | {"problem": given, "network": "ring:2"}
    made = validate(raw, here, "x.toml").problem.build()
    assert made.rows["train"][1]["a"].shape[1] == 3
    assert "no names; leave features out" in refused(here, dataset=["one.txt"])


def test_parquet_reads_as_csv_does(here):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    wanted = data.csv("site_0.csv", "days", real=True, features=["age", "dose"])
    ages, doses = wanted.train[0].T
    columns = {"age": ages, "dose": doses, "days": wanted.train[1], "name": ["x"] * 10}
    parquet.write_table(arrow.table(columns), "a.parquet")
    found = data.parquet("a.parquet", "days", real=True, features=["age", "dose"])
    for one, two in zip(found.train, wanted.train):
        np.testing.assert_array_equal(one, two)
    assert found.names == wanted.names
    assert data.parquet("a.parquet", "name", features=["age"]).classes == ("x",)
    for change, message in (
        (
            {"age": [*ages[:9], None]},
            "a.parquet: row 10, column 'age': a missing value; drop .*missing_values",
        ),
        ({"age": [*ages[:9], np.nan]}, "row 10, column 'age': a missing value"),
        ({"age": [*ages[:9], np.inf]}, "row 10, column 'age': inf is not a finite number"),
        (
            {"age": ["old"] * 10},
            r"column 'age' \('old', ...\) holds text, .* features = \[\"dose\"\]",
        ),
        ({"days": ages}, "row 1, column 'days': label .* is not a whole number"),
    ):
        parquet.write_table(arrow.table(columns | change), "a.parquet")
        with pytest.raises(DataError, match=message):
            data.parquet("a.parquet", "days", features=["age", "dose"])
    (here / "b.parquet").write_text("no")
    with pytest.raises(DataError, match="not a readable Parquet"):
        data.parquet("b.parquet", "days")


def test_parquet_without_pyarrow_says_what_to_install(here, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs pyarrow; pip install 'diamond-bilevel\[parquet\]'"):
        data.parquet("a.parquet", "days")
