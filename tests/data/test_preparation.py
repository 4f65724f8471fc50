"""Columns of all kinds become features, and the preparation of a run repeats it for new rows."""

import numpy as np
import pytest

from diamond import data
from diamond.config.dataset_section import Columns, load_dataset
from diamond.config.partition_section import partition_rows
from diamond.data import DataError
from diamond.data.preparation import Preparation, make_preparation, read_preparation
from diamond.data.standardize import federated_scale
from diamond.data.table_columns import Column

pytestmark = pytest.mark.quick
NORTH = """age,sex,smoker,seen,stage,ill
50,F,yes,2024-01-01,1,no
40,M,no,2024-01-02T12:00,2,yes
,F,no,,1,no
30,M,true,2024-01-05,2,yes
"""
SOUTH = """age,sex,smoker,seen,stage,ill
55,X,0,2024-02-01,1,no
45,,1,2024-02-02,2,yes
35,F,0,2024-02-03,1,no
25,X,1,2024-02-04,2,yes
"""
LEVELS = {"stage": ["1", "2"]}


@pytest.fixture(autouse=True)
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "north.csv").write_text(NORTH)
    (tmp_path / "south.csv").write_text(SOUTH)


def partitioned(**options):
    known = {"dataset": {"north": "north.csv", "south": "south.csv"}, "label": "ill"}
    known |= {"shares": (0.5, 0.25, 0.25), "categories": "one_hot", "levels": LEVELS}
    return partition_rows(**known | {"missing_values": "mean"} | options)


def test_every_kind_of_column_becomes_features():
    found = data.csv(
        "north.csv",
        "ill",
        categories="one_hot",
        levels=LEVELS,
        missing_values={"age": 1, "seen": 2},
    )
    assert found.names == ("age", "sex=F", "sex=M", "smoker", "seen", "stage=1", "stage=2")
    days = 19723  # 2024-01-01
    assert found.train[0].tolist() == [
        [50, 1, 0, 1, days, 1, 0],
        [40, 0, 1, 0, days + 1.5, 0, 1],
        [1, 1, 0, 0, 2, 1, 0],
        [30, 0, 1, 1, days + 4, 0, 1],
    ]
    assert [(column.name, column.kind) for column in found.columns] == [
        ("age", "number"),
        ("sex", "levels"),
        ("smoker", "boolean"),
        ("seen", "date"),
        ("stage", "levels"),
    ]
    assert found.missing[0].cells == {"age": 1, "seen": 1}


def test_parquet_has_the_same_features():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from datetime import datetime as date

    import pyarrow as arrow
    from pyarrow import parquet

    columns = {
        "age": [50, 40, None, 30],
        "sex": arrow.array(["F", "M", "F", "M"]).dictionary_encode(),
        "smoker": [True, False, False, True],
        "seen": [date(2024, 1, 1), date(2024, 1, 2, 12), None, date(2024, 1, 5)],
        "stage": [1, 2, 1, 2],
        "ill": ["no", "yes", "no", "yes"],
    }
    parquet.write_table(arrow.table(columns), "north.parquet")
    options = {"categories": "one_hot", "levels": LEVELS, "missing_values": "mean"}
    one, two = (
        data.parquet("north.parquet", "ill", **options),
        data.csv("north.csv", "ill", **options),
    )
    assert one.names == two.names and one.classes == two.classes
    np.testing.assert_array_equal(one.train[0], two.train[0])
    np.testing.assert_array_equal(one.train[1], two.train[1])


def test_levels_are_united_over_the_sites_with_a_note():
    found = partitioned()
    assert found.names[1:4] == ("sex=F", "sex=M", "sex=X")
    assert "the levels of sex were united over the sites" in found.notes[-1]
    assert 'levels = {sex = ["F", "M", "X"]}' in found.notes[-1]
    declared = partitioned(levels=LEVELS | {"sex": ["M", "F", "X"]})
    assert declared.names[1:4] == ("sex=M", "sex=F", "sex=X") and len(declared.notes) == 3
    assert "seen: days since 1970, not scaled" in declared.notes[-1]
    assert len(partitioned(scale={"seen": [19800.0, 30.0]}).notes) == 3
    levels = ("sex", ("F", "M")), ("stage", ("1", "2"))
    columns = Columns("ill", levels=levels, missing_values="keep")
    with pytest.raises(DataError) as refused:
        load_dataset({"north": "north.csv", "south": "south.csv"}, None, columns)
    message = str(refused.value)
    assert "south.csv: row 2, column 'sex': 'X' is none of the levels F, M; row 5" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"categories": "refuse"},
            r"column 'sex' \('F', ...\) holds text.*levels = {sex = \[\"F\"",
        ),
        ({"levels": {"ward": ["a"]}}, "levels: no feature column 'ward'; there are age"),
        ({"levels": {"sex": ["F", "F"]}}, "levels: sex has no level, or one twice"),
        ({"levels": {"sex": []}}, "levels: sex has no level, or one twice"),
        ({"scale": {"age": [np.inf, 1.0]}}, "give its mean and a deviation above 0"),
        ({"missing_values": "refuse"}, "column 'age': '' is a missing value"),
    ],
)
def test_what_cannot_be_a_feature_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        partitioned(**change)


def test_texts_that_are_no_levels_are_refused(tmp_path):
    rows = "\n".join(f"P{k},{k},{k % 2}" for k in range(60))
    (tmp_path / "a.csv").write_text(f"id,age,y\n{rows}\n")
    with pytest.raises(DataError, match=r"column 'id' has 60 different texts .*leave it out"):
        data.csv("a.csv", "y", categories="one_hot")
    (tmp_path / "south.csv").write_text(SOUTH.replace("2024-02-0", "visit "))
    with pytest.raises(DataError, match="column 'seen' holds texts, but dates in other files"):
        partitioned()


def test_the_preparation_repeats_every_step_for_new_rows(tmp_path):
    found = partitioned(scale="standard")
    preparation = Preparation.model_validate_json(found.preparation.to_json())
    assert preparation == found.preparation and preparation.classes == ("no", "yes")
    assert found.names == preparation.features
    for agent, site in enumerate(("north", "south")):
        rows = preparation.prepare(f"{site}.csv", agent)
        used = np.vstack([part[agent]["a"] for part in (found.train, found.valid, found.test)])
        np.testing.assert_array_equal(*(a[np.lexsort(a.T)] for a in (rows, used)))
    columns = {"age": [50, None], "sex": ["F", ""], "smoker": [True, False], "stage": [2, 1]}
    columns |= {"seen": np.array(["2024-01-01", "NaT"], "datetime64[D]"), "more": ["x", "y"]}
    lines = ["more;seen;age;sex;smoker;stage", "x;2024-01-01;50;F;yes;2", "y;;;;no;1"]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    expected = preparation.prepare("new.csv", 1)
    np.testing.assert_array_equal(preparation.prepare(columns, 1), expected)
    for package in ("pandas", "polars"):
        frames = pytest.importorskip(package, reason=f"{package} is not installed")
        np.testing.assert_array_equal(preparation.prepare(frames.DataFrame(columns), 1), expected)


def test_a_new_table_that_differs_is_refused_with_the_column(tmp_path):
    preparation = partitioned().preparation
    header, row = "age,sex,smoker,seen,stage", "50,F,yes,2024-01-01,1"
    for text, message in (
        (
            f"{header[4:]}\n{row[3:]}\n",
            r"new.csv: no column 'age', which the run needs; did you mean stage",
        ),
        (f"{header}\n{row.replace('F', 'W')}\n", "row 2, column 'sex': 'W' is none of the levels"),
        (f"{header}\n{row.replace('50', 'old')}\n", "row 2, column 'age': 'old' is not a finite"),
        (f"{header}\n{row.replace('yes', '2')}\n", "column 'smoker': '2' is not true, false, yes"),
        (f"{header}\n{row.replace('2024', 'May')}\n", "'May-01-01' is not a date such as"),
    ):
        (tmp_path / "new.csv").write_text(text)
        with pytest.raises(DataError, match=message):
            preparation.prepare("new.csv")
    full = dict(zip(header.split(","), ([cell] for cell in row.split(","))))
    strict = partitioned(missing_values="drop").preparation
    assert strict.prepare(full).shape == (1, 8)
    with pytest.raises(
        DataError, match="row 1, column 'age': '' is a missing value; give a value, since"
    ):
        strict.prepare(full | {"age": [""]})
    for rows, message in (
        (3, "rows of type int .*give the path of a table"),
        (full | {"age": [1, 2]}, "of unequal lengths"),
        (np.zeros((2, 3)), "rows of shape .*give 5 columns: age, sex"),
        (full | {"smoker": np.array([2.0])}, "column 'smoker': 2 is not true, false"),
        (full | {"age": np.array([np.inf])}, "column 'age': inf is not a finite number"),
        (full | {"age": [[1]]}, "column of shape"),
    ):
        with pytest.raises(DataError, match=message):
            preparation.prepare(rows)


def test_coefficients_in_units_of_the_table_give_the_same_scores():
    preparation = partitioned(scale="standard").preparation
    weights = np.random.default_rng(0).normal(size=(len(preparation.features), 2))
    expected = preparation.prepare("north.csv") @ weights
    coefficients = preparation.in_table_units(weights, 0.0)
    plain = partitioned().preparation.prepare("north.csv").astype(float)
    scores = plain @ np.stack([coefficients[name] for name in preparation.features])
    np.testing.assert_allclose(scores + coefficients["intercept"], expected, rtol=1e-3, atol=1e-2)


def test_least_squares_has_the_coefficients_of_the_table():
    random = np.random.default_rng(0)
    ages, doses = 50 + 9 * random.normal(size=40), 0.01 * random.normal(size=40)
    table = np.column_stack([ages, doses]).astype(np.float32)
    targets = 2 * table[:, 0] - 30 * table[:, 1] + 7
    columns = [Column("age"), Column("dose")]
    scale = federated_scale([table[:10], table[10:]])
    options = {"scale": scale, "fills": ()}
    preparation = make_preparation(columns, "days", (), **options)
    design = np.column_stack([preparation.prepare(table), np.ones(40)])
    *weights, intercept = np.linalg.lstsq(design, targets)[0]
    found = preparation.in_table_units(np.array(weights), intercept)
    assert [float(found[k]) for k in ("age", "dose", "intercept")] == pytest.approx(
        [2, -30, 7], 1e-4
    )


def test_texts_and_arrays_without_names_are_prepared_too(tmp_path):
    (tmp_path / "a.csv").write_text("text,n,y\n" + "good film,1,1\nbad plot,2,0\n" * 6)
    preparation = partition_rows("a.csv", 2, label="y", hashed=4).preparation
    np.testing.assert_array_equal(
        preparation.prepare({"text": ["bad plot"], "n": [2]}),
        np.hstack([[[2.0]], data.hashed(["bad plot"], 4)]),
    )
    rows = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    np.savez("a.npz", features=rows, labels=[0, 1] * 6)
    found = partition_rows("a.npz", 2, scale="standard")
    used = np.vstack([part[k]["a"] for part in found[:3] for k in range(2)])
    prepared = found.preparation.prepare(rows)
    np.testing.assert_array_equal(*(a[np.lexsort(a.T)] for a in (used, prepared)))


def test_damaged_preparations_are_refused(tmp_path):
    path, good = tmp_path / "preparation.json", partitioned().preparation.to_json()
    path.write_text(good)
    assert read_preparation(path) == partitioned().preparation
    for damage in (
        good[:-20],
        good.replace('"mean": [', '"mean": [1.0,'),
        good.replace('"kind": "date"', '"kind": "time"'),
        good.replace('"format": 1', '"format": 2'),
        good.replace('"deviation": [\n  1.0', '"deviation": [\n  0.0'),
        good.replace('"label"', '"lable"'),
        good.replace('"name": "sex"', '"name": "age"'),
        good.replace('"F",', '"M",'),
        good.replace('"width": 1', '"width": 0', 1),
        good.replace('"width": 1', '"width": "1"', 1),
        good.replace('"width": 1', '"width": 1, "more": 1', 1),
        "null",
        "\x00",
    ):
        path.write_text(damage)
        assert damage != good
        with pytest.raises(DataError, match="not a preparation of rows"):
            read_preparation(path)
