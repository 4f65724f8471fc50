"""The tables of the documentation are those of the results that are kept."""

import runpy
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
BOARD = runpy.run_path(str(ROOT / "benchmarks" / "leaderboard.py"))


def test_the_page_shows_what_was_kept():
    text = (ROOT / "docs" / "benchmark.md").read_text()
    assert "<!-- table common calls -->" in text
    assert BOARD["tables"](text) == text


def test_a_best_in_bold_is_the_smallest_of_its_case():
    kept = BOARD["load"](ROOT / "docs" / "benchmark" / "common.json")
    rows = [row for row in kept["costs"]["tuned"] if row["case"] == "common-noisy"]
    least = min(rows, key=lambda row: row["calls"])
    assert np.isfinite(least["calls"]) and least["reached"] > least["seeds"] / 2
    line = next(s for s in BOARD["markdown"](kept).splitlines() if s.startswith("| dsgda_gt"))
    assert least["method"] == "dsgda_gt" and f"**{BOARD['short'](least['calls'])}**" in line


def test_numbers_are_short():
    assert [BOARD["short"](v) for v in (12, 999.7, 2560, 1.18e6)] == ["12", "1k", "2.56k", "1.18M"]
