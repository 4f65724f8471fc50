"""Search: what can be composed, equal costs, and a winner that a file can say."""

import pytest
from commands import result
from compiling import losses_only, quickly
from helpers import quad, ring

from diamond.bench import search
from diamond.experiment.config import load


@pytest.mark.parametrize(
    ("level", "network", "count"),
    [
        ("personal", "symmetric", 3 * 4 * 4 * 2),
        ("common", "symmetric", 2 * 4 * 4 * 4 * 2),
        ("none", "symmetric", 4 * 4),
        ("personal", "directed", 3 * 4 * 2 * 2),
    ],
)
def test_all_that_can_be_composed_is_there_once(level, network, count):
    found = [tuple(parts.items()) for parts in search.compositions(level, network)]
    assert len(found) == len(set(found)) == count


def test_a_budget_or_cost_that_makes_no_sense_is_refused():
    given = quad().problem, ring(4), 10, 2
    with pytest.raises(ValueError, match="budget = 2: a search needs at least 3 runs"):
        search.search(*given, 2)
    with pytest.raises(ValueError, match="no cost 'time'; there are calls, samples, bytes"):
        search.search(*given, 3, cost="time")


TOML = """
rounds = 60
network = "ring:3"
problem = {kind = "quadratic", agents = 3, upper = 2, lower = 2, rows = 12}
algorithm = {name = "diamond", batch = 4}
"""
TWO = [
    {"directions": "carried", "estimator": e, "x": "gt", "y": "local", "plan": "xyz"}
    for e in ("plain", "momentum")
]


def test_the_winner_and_the_best_published_method_meet_on_fresh_seeds_at_equal_cost(
    tmp_path, monkeypatch
):
    losses_only(monkeypatch)
    seeds, spent = set(), {}
    run = search.late

    def watched(problem, network, one, share, seed):
        seeds.add((seed, share))
        each = search._each(problem, network, one.algorithm, "calls")
        spent[one.label] = each * one.rounds
        return run(problem, network, one, share, seed)

    monkeypatch.setattr(search, "late", watched)
    monkeypatch.setattr(search, "compositions", lambda level, network: iter(TWO))
    monkeypatch.setattr(search.catalogue, "solving", lambda level, network: ["diamond", "dsgd"])
    (tmp_path / "mine.toml").write_text(TOML)
    words = "search", tmp_path / "mine.toml", "--budget", 3, "--seeds", 2, "--quiet"
    with quickly():
        found = result(*words, "--out", tmp_path)
    assert found["tried"] == 9  # three times the budget: four methods, and others of their numbers
    fresh = {seed for seed, share in seeds if seed < 100}
    assert fresh == {0, 1} and len({seed for seed, _ in seeds}) == 2 + len(search.SHARES)
    assert max(spent.values()) < 1.1 * min(spent.values())
    composed, published = found["evidence"]
    assert published["method"] in ("diamond", "dsgd") and composed["method"].startswith("carried")
    assert len(composed["of"]) == 2
    written = load(tmp_path / "mine-search" / "searched.toml")
    best = min(composed, published, key=lambda row: row["upper_loss"])
    assert written.algorithm[0].label == best["method"] and written.rounds == best["rounds"]
