"""Text as hashed features: counts by hand (digests by `b2sum -l 64`), tables and plain files."""

import os
import subprocess
import sys

import numpy as np
import pytest

from diamond import data
from diamond.data import DataError

# b2sum -l 64: film 40..5b, good 07..30, bad a7..53, plot b1..ea; with 8 features the lowest three
# bits of the first byte are the place, and a last byte of 80 or more is a minus.
FILM, GOOD, BAD, PLOT = 0, 7, 7, 1


@pytest.mark.quick
def test_words_are_counted_where_their_digests_say():
    found = data.hashed(["good film", "Bad PLOT, bad film!", "..."], 8)
    wanted = np.zeros((3, 8))
    wanted[0, [FILM, GOOD]] = 1 / np.sqrt(2)
    wanted[1, [FILM, BAD, PLOT]] = np.array([1, 2, -1]) / np.sqrt(6)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert found.dtype == np.float32
    with pytest.raises(ValueError, match="hashed"):
        data.hashed(["good"], 0)


def test_other_processes_hash_alike():
    code = "from diamond.data.hashed_text import features; print(features(['ünder'], 8).argmax())"
    for seed in "12":
        given = os.environ | {"PYTHONHASHSEED": seed}
        process = subprocess.run(
            [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
        )
        assert process.stdout == "2\n"  # ünder: a2..5a


def test_tables_and_plain_files_hold_the_same_text(tmp_path):
    (tmp_path / "a.csv").write_text('stars,body,mark\n5,"good film",yes\n1,"bad plot, film",no\n')
    (tmp_path / "a.txt").write_text("yes\tgood film\n\nno bad plot, film\n")
    words = data.hashed(["good film", "bad plot, film"], 8)
    table = data.csv(tmp_path / "a.csv", "mark", hashed=8, text="body")
    np.testing.assert_array_equal(table.train[0], np.column_stack([[5, 1], words]))
    assert table.names == ("stars", *(f"body#{k}" for k in range(8)))
    plain = data.lines(tmp_path / "a.txt", 8)
    np.testing.assert_array_equal(plain.train[0], words)
    assert plain.classes == table.classes == ("no", "yes") and plain.train[1].tolist() == [1, 0]
    alone = data.csv(tmp_path / "a.csv", "mark", features=[], hashed=8, text="body")
    np.testing.assert_array_equal(alone.train[0], words)


@pytest.mark.parametrize("text, message", [
    ("yes good\nno\n", "a.txt, line 2: a label without a text"),
    ("\n", "a.txt: no lines"),
    ("1.5 good\n2 bad\n", "a.txt, row 1, column 'label': label 1.5 is not a whole number"),
])  # fmt: skip
def test_a_line_that_is_wrong_is_named(tmp_path, text, message):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        data.lines(tmp_path / "a.txt", 8)


def test_parquet_has_texts_too(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    columns = {"text": ["good film", "bad plot"], "stars": [5, 1], "label": [1, 0]}
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    found = data.parquet(tmp_path / "a.parquet", "label", hashed=8)
    words = data.hashed(columns["text"], 8)
    np.testing.assert_array_equal(found.train[0], np.column_stack([[5, 1], words]))
    with pytest.raises(DataError, match=r"column 'stars': a number is no text"):
        data.parquet(tmp_path / "a.parquet", "label", features=[], hashed=8, text="stars")
