"""Missing values, text among numbers, other separators: read, filled and counted, or refused."""

import numpy as np
import pytest

from diamond import data
from diamond.data import DataError, MissingCells

pytestmark = pytest.mark.quick
TABLE = """age,dose,ill,city
50,1,0,north
,2,1,north
NA,?,0,south
30,4,1,south
40,6,,south
"""


def table(tmp_path, text=TABLE, name="a.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_missing_values_are_refused_with_the_key_that_helps(tmp_path):
    with pytest.raises(DataError) as refused:
        data.csv(table(tmp_path), "ill", "city")
    message = str(refused.value)
    assert "row 3, column 'age': '' is a missing value; row 4, column 'age': 'NA'" in message
    assert 'missing_values = "drop"' in message and 'missing_values = "mean" or a number' in message
    with pytest.raises(DataError, match=r"row 6, column 'ill': empty; .*missing_values = \"drop\""):
        data.csv(table(tmp_path), "ill", "city", missing_values="mean")
    for rule in ("median", True, {"age": "x"}, float("nan")):
        with pytest.raises(DataError, match=r"missing_values = .*; give 'refuse', 'drop', 'mean'"):
            data.csv(table(tmp_path), "ill", "city", missing_values=rule)


def test_rows_are_dropped_or_cells_filled_site_by_site(tmp_path):
    path, labelled = table(tmp_path), table(tmp_path, TABLE.replace("6,,", "6,1,"), "b.csv")
    found = data.csv(path, "ill", "city", missing_values="drop")
    assert found.train[0].tolist() == [[50, 1], [30, 4]] and found.train[1].tolist() == [0, 1]
    assert found.sites.tolist() == ["north", "south"]
    assert found.missing == (
        MissingCells("north", {"age": 1}, 1),
        MissingCells("south", {"age": 1, "dose": 1, "ill": 1}, 2),
    )
    cells = MissingCells("north", {"age": 1}, 1), MissingCells("south", {"age": 1, "dose": 1}, 1)
    for rule, ages, doses in (
        ("mean", [50, 50, 35, 30, 40], [1, 2, 5, 4, 6]),
        (-1.0, [50, -1, -1, 30, 40], [1, 2, -1, 4, 6]),
        ({"age": 7, "dose": 0.5}, [50, 7, 7, 30, 40], [1, 2, 0.5, 4, 6]),
    ):
        found = data.csv(labelled, "ill", "city", missing_values=rule)
        np.testing.assert_array_equal(found.train[0].T, [ages, doses])
        assert found.missing == cells
    dataset = data.csv(labelled, "ill", "city", missing_values="keep")
    assert np.isnan(dataset.train[0]).sum() == 3


@pytest.mark.parametrize("text, rule, message", [
    ("a,b,y\n,1,0\n,2,1\n", "mean", "no training row of a has a value of 'a'.*= {a = 0.0}"),
    ("a,b,y\n,1,0\n1,,1\n", {"a": 0.0}, "missing_values has no number for 'b'"),
    ("a,b,y\n,1,0\n1,2,1\n", {"c": 0.0}, "missing_values: no feature 'c'; there are a, b"),
    ("a,b,y\n,1,0\n1,,1\n", "drop", "every row of a lacks some value"),
])  # fmt: skip
def test_values_that_cannot_be_filled_are_refused(tmp_path, text, rule, message):
    with pytest.raises(DataError, match=message):
        data.csv(table(tmp_path, text), "y", missing_values=rule)


def test_a_class_may_be_called_none_and_a_site_keeps_a_row(tmp_path):
    found = data.csv(table(tmp_path, "a,y\n1,none\n2,mild\n"), "y")
    assert found.classes == ("mild", "none")
    text = "a,b,y,city\n1,2,0,north\n,2,1,south\n3,,1,south\n"
    with pytest.raises(DataError, match=r"every row of south lacks some value.*missing_values"):
        data.csv(table(tmp_path, text), "y", "city", missing_values="drop")


def test_arrays_and_parquet_have_missing_values_too(tmp_path):
    rows = np.array([[1.0, np.nan], [3.0, 4.0], [np.nan, 8.0]])
    test = {"test_features": [[np.nan, 1.0]], "test_labels": [1]}
    np.savez(tmp_path / "a.npz", features=rows, labels=[0, 1, 1], **test)
    with pytest.raises(DataError, match=r"row 1, column 2: nan is not .*missing_values"):
        data.npz(tmp_path / "a.npz")
    found = data.npz(tmp_path / "a.npz", missing_values="mean")
    assert found.train[0].tolist() == [[1, 6], [3, 4], [2, 8]] and found.test[0].tolist() == [
        [2, 1]
    ]
    assert found.missing == (MissingCells("a", {"column 1": 1, "column 2": 1}, 2),)
    dropped = data.npz(tmp_path / "a.npz", missing_values="drop")
    assert dropped.train[0].tolist() == [[3, 4]] and dropped.missing == found.missing
    assert len(dropped.test[0]) == 0
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    columns = {"age": [50, None, None, 30, 40], "dose": [1.0, 2, np.nan, 4, 6]}
    labels = {"ill": [0, 1, 0, 1, None], "city": ["north", "north", *["south"] * 3]}
    parquet.write_table(arrow.table(columns | labels), tmp_path / "a.parquet")
    for rule, label in (("drop", "ill"), ("mean", "city")):
        given = label, "city" if label == "ill" else None
        use = {"features": ["age", "dose"], "missing_values": rule}
        one = data.parquet(tmp_path / "a.parquet", *given, **use)
        same = data.csv(table(tmp_path), *given, **use)
        np.testing.assert_array_equal(one.train[0], same.train[0])
        np.testing.assert_array_equal(one.train[1], same.train[1])
        assert one.missing == same.missing


def test_columns_of_text_are_named_with_their_remedies(tmp_path):
    rows = "\n".join(f"P{k},{k},no change,{k % 2}" for k in range(12))
    with pytest.raises(DataError) as refused:
        data.csv(table(tmp_path, f"id,age,note,y\n{rows}\n"), "y")
    message = str(refused.value)
    assert "columns 'id' ('P0', ...) and 'note' ('no change', ...) hold text" in message
    assert 'features = ["age"]' in message and 'hashed = 64, text = "id"' in message


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_are_read(tmp_path, separator):
    text = TABLE.replace(",", separator).encode("utf-8-sig")
    (tmp_path / "b.tsv").write_bytes(text)
    found = data.csv(tmp_path / "b.tsv", "ill", "city", missing_values="drop")
    assert found.names == ("age", "dose") and found.train[0].tolist() == [[50, 1], [30, 4]]
    decimal = "age;dose;y\n1,5;2;0\n2,5;3;1\n".replace(";", separator)
    with pytest.raises(DataError, match=r"'1,5' is not .*; correct .* with a point in decimal"):
        data.csv(table(tmp_path, decimal), "y")
    with pytest.raises(DataError, match="no column 'z'; there are age, dose, y"):
        data.csv(table(tmp_path, decimal), "z")
