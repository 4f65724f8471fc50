"""Partitions: every row exactly once, seeded, and refused by name where an agent would starve."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diamond import data
from diamond.data import partition
from diamond.data.dataset import DataError

pytestmark = pytest.mark.quick

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(np.array)
SEED = st.integers(0, 2**32)
quick = settings(max_examples=60, deadline=None)


def check(make, n: int) -> list[np.ndarray]:
    """Assert that a partition is exact, without empty parts, and the same again."""
    parts, again = make(), make()
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert all(len(part) for part in parts)
    assert all(map(np.array_equal, parts, again)) and parts[0].dtype == np.int64
    return parts


@quick
@given(LABELS, st.integers(1, 9), SEED)
def test_iid(labels, agents, seed):
    if agents > len(labels):
        with pytest.raises(DataError, match=f"use at most {len(labels)} agents"):
            partition.iid(labels, agents, seed)
        return
    parts = check(lambda: partition.iid(labels, agents, seed), len(labels))
    sizes = [len(part) for part in parts]
    assert len(parts) == agents and max(sizes) - min(sizes) <= 1
    same = partition.iid(len(labels), agents, seed)
    assert all(map(np.array_equal, parts, same))


@quick
@given(LABELS, st.integers(1, 9), st.integers(1, 3), SEED)
def test_by_label(labels, agents, shards, seed):
    if agents * shards > len(labels):
        with pytest.raises(DataError, match="use at most"):
            partition.by_label(labels, agents, seed, shards)
        return
    parts = check(lambda: partition.by_label(labels, agents, seed, shards), len(labels))
    place = np.empty(len(labels), int)
    place[np.argsort(labels, kind="stable")] = np.arange(len(labels))
    for part in parts:  # each hand is `shards` runs of the sorted order
        assert (np.diff(place[part]) != 1).sum() <= shards - 1


@pytest.mark.wide
@quick
@given(LABELS, st.integers(1, 5), st.floats(0.05, 100), SEED)
def test_dirichlet(labels, agents, concentration, seed):
    def make():
        return partition.dirichlet(labels, agents, concentration, seed)

    try:
        make()
    except DataError as refusal:
        assert "agent" in str(refusal) and f"{len(labels)} rows over {agents}" in str(refusal)
    else:
        assert len(check(make, len(labels))) == agents


def test_dirichlet_concentration_matters():
    labels = np.repeat(np.arange(10), 200)
    even = data.counts(partition.dirichlet(labels, 5, 1e4, 0), labels)
    skew = data.counts(partition.dirichlet(labels, 5, 0.05, 0), labels)
    assert abs(even - 40).max() <= 4  # a share's deviation is about 0.4 % of 200 rows
    assert np.median(skew.max(0)) > 150
    assert min(map(len, partition.dirichlet(labels, 5, 0.1, 0, minimum=100))) >= 100


def test_dirichlet_redraws_by_its_rule():
    # Two labels at a small concentration starve one of four agents in most draws.
    labels = np.repeat([0, 1], 20)
    first = [partition.dirichlet(labels, 4, 0.3, seed) for seed in range(20)]
    assert all(min(map(len, parts)) >= 1 for parts in first)


@quick
@given(st.lists(st.sampled_from(["north", "south", "east"]), min_size=1, max_size=30))
def test_by_column(sites):
    parts = check(lambda: partition.by_column(sites), len(sites))
    assert [sites[part[0]] for part in parts] == sorted(set(sites))
    assert all(len({sites[k] for k in part}) == 1 for part in parts)


@quick
@given(st.integers(1, 300), st.integers(1, 9), st.floats(0.3, 3), SEED)
def test_unequal(n, agents, ratio, seed):
    def make():
        return partition.unequal(n, agents, seed, ratio=ratio)

    try:
        sizes = np.array([len(part) for part in make()])
    except DataError as refusal:
        assert "agent" in str(refusal) and "rows" in str(refusal)
        return
    check(make, n)
    share = ratio ** np.arange(agents)
    assert abs(sizes - n * share / share.sum()).max() < 1 + 1e-9


def test_unequal_proportions():
    parts = check(lambda: partition.unequal(100, 3, 1, proportions=(5, 3, 2)), 100)
    assert [len(part) for part in parts] == [50, 30, 20]


@quick
@given(st.integers(15, 200), st.integers(1, 4), SEED)
def test_split(n, agents, seed):
    parts = partition.iid(n, agents, seed)
    fractions = (0.4, 0.4, 0.2)
    kinds = partition.split(parts, fractions, seed)
    for agent, part in enumerate(parts):
        pieces = [kind[agent] for kind in kinds]
        assert np.array_equal(np.sort(np.concatenate(pieces)), part)
        for piece, fraction in zip(pieces, fractions, strict=True):
            assert len(piece) >= 1 and abs(len(piece) - fraction * len(part)) < 1
    alone = partition.split(parts[:1], fractions, seed)
    assert all(np.array_equal(kind[0], one[0]) for kind, one in zip(kinds, alone, strict=True))


ROWS = np.zeros(5, int)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: partition.iid(ROWS, 9, 0),
            "agent 5 would get 0 rows: 5 rows over 9 agents; use at most 5 agents",
        ),
        (lambda: partition.iid(0, 1, 0), "no rows"),
        (lambda: partition.iid(5, 0, 0), "0 agents; give at least 1"),
        (lambda: partition.iid(5, 2, -1), "seed -1"),
        (lambda: partition.iid(np.zeros((2, 2)), 2, 0), r"labels of shape \(2, 2\)"),
        (lambda: partition.by_label(ROWS, 2, 0, shards=3), "6 runs, more than the 5 rows; use at"),
        (lambda: partition.by_label(ROWS, 2, 0, shards=0), "0 shards"),
        (lambda: partition.dirichlet(ROWS, 2, 0.0, 0), "concentration 0.0"),
        (lambda: partition.dirichlet(ROWS, 2, np.nan, 0), "concentration nan"),
        (
            lambda: partition.dirichlet(ROWS, 3, 1.0, 0, minimum=2),
            "agent 2 would get 1 rows: 5 rows over 3 agents, at least 2 each; use at most 2",
        ),
        (
            lambda: partition.dirichlet(ROWS, 5, 0.01, 0),
            "agent . got 0 rows in the last of 1000 Dirichlet draws",
        ),
        (lambda: partition.by_column([]), "name one site a row"),
        (lambda: partition.unequal(5, 2, 0), "give either ratio or proportions"),
        (lambda: partition.unequal(5, 2, 0, ratio=-1), "ratio -1"),
        (lambda: partition.unequal(5, 2, 0, proportions=[1]), "1 proportions for 2 agents"),
        (lambda: partition.unequal(5, 2, 0, proportions=[1, 0]), "give finite numbers above 0"),
        (lambda: partition.unequal(5, 3, 0, ratio=0.01), "agent 1 would get 0 rows"),
        (lambda: partition.split([ROWS], (0.5, 0.4), 0), "sum to 0.9"),
        (lambda: partition.split([ROWS], (1.5, -0.5), 0), "give finite numbers above 0"),
        (
            lambda: partition.split([[0, 1, 2], [3, 4]], (0.4, 0.4, 0.2), 0),
            "agent 1 has 2 rows, which leaves fraction 0.2 with none",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(DataError, match=message):
        make()


def test_table():
    labels = np.array([0, 0, 1, 2, 2, 2])
    parts = [np.array([0, 1, 2]), np.array([3, 4, 5])]
    assert data.table(parts, labels).splitlines() == [
        "agent  rows  0  1  2",
        "    0     3  2  1  0",
        "    1     3  0  0  3",
        "  all     6  2  1  3",
    ]
    assert data.table(parts, labels, ("cat", "dog", "owl")).startswith("agent  rows  cat  dog  owl")
    with pytest.raises(DataError, match="2 class names do not cover"):
        data.table(parts, labels, ("cat", "dog"))


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    labels = data.digits().train[1]
    path = data.picture(partition.by_label(labels, 9, 0, 2), labels, tmp_path / "parts.png")
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000
    names = [f"ward {k}" for k in range(9)]
    parts = partition.by_label(labels, 9, 0, 2)
    named = data.picture(parts, labels, tmp_path / "named.svg", agents=names)
    assert all(f"<!-- {name} -->" in named.read_text() for name in names)
