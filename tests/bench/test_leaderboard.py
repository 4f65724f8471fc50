"""The tables of the documentation are those of the results that are kept."""

import runpy
from pathlib import Path

import numpy as np

from diamond.experiment.standings import leading, said, standings

ROOT = Path(__file__).parents[2]
BOARD = runpy.run_path(str(ROOT / "benchmarks" / "leaderboard.py"))
FINDINGS = BOARD["findings"]


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


def test_a_claim_is_what_a_count_of_the_cases_says():
    costs = {"mine": [1.0, 2.0, np.inf, 4.0, 5.0], "other": [2.0, 1.0, 3.0, 8.0, np.inf]}
    cases = dict.fromkeys("abcde")
    rows = [
        {"case": case, "method": name, "calls": value}
        for name, each in costs.items()
        for case, value in zip(cases, each)
    ]
    kept = {"cases": cases, "costs": {"tuned": rows, "untuned": rows[:5]}}
    found = FINDINGS.against(kept, "mine", "other")
    assert (found["wins"], found["losses"], found["solved"], found["cases"]) == (3, 2, [4, 4], 5)
    assert found["ratio"] == 0.5  # the median of 1/2, 2 and 1/2, where both get there
    assert FINDINGS.verdict(found) == "it depends"
    says = lambda wins, losses: FINDINGS.verdict({"wins": wins, "losses": losses})
    assert (says(6, 0), says(5, 0), says(0, 6)) == ("yes", "yes, perhaps", "no")
    assert (says(2, 4), says(0, 0)) == ("no, perhaps", "nothing decides")


def test_advice_follows_the_standings_of_what_is_kept():
    kept = BOARD["everything"]()
    made = {name: FINDINGS.standings(suite) for name, suite in kept.items()}
    written = {name: [one._asdict() for one in rows] for name, rows in standings().items()}
    assert written == {name: made[name] for name in written} and written.keys() == kept.keys()
    (mine,) = [one for one in written["personal"] if one["method"] == "gt_sgd"]
    rows = [r for r in kept["personal"]["costs"]["untuned"] if r["method"] == "gt_sgd"]
    assert (
        mine["untuned"] == sum(r["reached"] > r["seeds"] // 2 for r in rows) <= mine["cases"] == 8
    )
    first = leading("personal", 8, "symmetric", 5)
    assert first[0].method == written["personal"][0]["method"] and len(first) == 5
    assert "with the steps it chooses" in said(first[0], "personal")
