"""Hyper-cleaning, against dense numpy in float64; and that it cleans."""

from itertools import pairwise

import jax
import numpy as np
import pytest
from exact_solution import solve_exactly
from fast_compilation import skip_loss_checks
from helpers import final_progress, ring
from scipy import special
from softmax_regression import reference

import diamond
from diamond.config.partition_section import partition_rows
from diamond.gallery import hyper_cleaning
from diamond.gallery.hyper_cleaning import corrupt, f1

RANDOM = np.random.default_rng(5)
P, Q, REGULARIZER = 3, 3, 0.05
COUNTS = (5, 6, 8)


def rows(count):
    return {"a": RANDOM.normal(size=(count, P)), "b": RANDOM.integers(0, Q, count)}


TRAIN, VALID = ([rows(n) for n in COUNTS] for _ in range(2))


@pytest.mark.wide
def test_the_hypergradient_is_that_of_dense_algebra():
    made = hyper_cleaning(TRAIN, VALID, classes=Q, regularizer=REGULARIZER, corrupted=0.3)
    train = corrupt([r | {"k": k} for r, k in zip(TRAIN, spans())], 0.3, Q, 0)[0]
    x = RANDOM.normal(size=sum(COUNTS))
    y, gradient = solve_exactly(made, x)
    weights = special.expit(x)
    wanted, effect = reference(weights, train, VALID, Q, REGULARIZER)
    expected = weights * (1 - weights) * effect
    np.testing.assert_allclose(np.vstack([y["w"], y["b"]]), wanted, atol=1e-10)
    np.testing.assert_allclose(gradient, expected, atol=1e-10)
    assert np.abs(expected).max() > 1e-3


def spans():
    ends = np.cumsum([0, *COUNTS])
    return [np.arange(*span) for span in pairwise(ends)]


@pytest.mark.quick
def test_a_share_of_the_labels_becomes_another(monkeypatch):
    skip_loss_checks(monkeypatch)
    given = [rows(100) | {"k": np.arange(100 * i, 100 * i + 100)} for i in range(2)]
    found, wrong = corrupt(given, 0.3, Q, seed=1)
    changed = np.concatenate([a["b"] != b["b"] for a, b in zip(given, found)])
    np.testing.assert_array_equal(changed, wrong)
    assert wrong.sum() == 60 and {0, 1, 2} == set(np.concatenate([r["b"] for r in found]))
    clean = hyper_cleaning(TRAIN, VALID, classes=Q, corrupted=0.0)
    assert not clean.wrong.any() and list(clean.metrics) == ["accuracy"]


@pytest.mark.quick
def test_rows_of_a_source_share_a_weight(monkeypatch):
    skip_loss_checks(monkeypatch)
    train = [r | {"k": RANDOM.integers(0, 4, len(r["b"]))} for r in TRAIN]
    train[0]["k"][0] = 3
    made = hyper_cleaning(train, VALID, classes=Q, corrupted=0.5)
    assert jax.eval_shape(made.init, jax.random.key(0))[0].shape == (4,)
    for before, after in zip(train, corrupt(train, 0.5, Q, 0)[0]):
        np.testing.assert_array_equal(before["b"] != after["b"], made.wrong[before["k"]])


@pytest.mark.quick
def test_f1_is_that_of_precision_and_recall():
    wrong = np.array([True, True, True, False, False, False])
    x = np.array([-1.0, -1.0, 1.0, -1.0, 1.0, 1.0])  # two hits, a miss, a false alarm
    np.testing.assert_allclose(f1(x, wrong), 2 * (2 / 3 * 2 / 3) / (2 / 3 + 2 / 3))
    assert f1(np.ones(6), wrong) == 0 and f1(np.ones(6), ~wrong & wrong) == 0


@pytest.mark.wide
def test_the_wrong_rows_of_the_digits_are_found_together(float32):
    made = hyper_cleaning(*partition_rows("digits", agents=5)[:3], corrupted=0.5)
    algorithm = diamond.diamond_common(10.0, 0.3, 0.3, 0.2, 0.2, batch=32)
    x = final_progress(made, ring(5), algorithm, 300).state.x
    every_row = 2 * 0.5 / (1 + 0.5)  # the f1 of saying that all are wrong
    assert made.f1(x) > 0.93 > every_row
    found = made.metrics["f1"](x.mean(0), None, None)
    assert made.f1(x) == pytest.approx(float(found)) and made.f1(0 * x) == 0
    test = jax.tree.map(lambda *a: np.concatenate(a), *made.rows["test"])
    accuracy = lambda x: made.metrics["accuracy"](x, solve_exactly(made, x)[0], test)
    ignored, cleaned = np.zeros(made.wrong.size, np.float32), x.mean(0)
    clean_only = np.where(made.wrong, -50, 5).astype(np.float32)
    assert accuracy(ignored) + 0.04 < accuracy(cleaned) > accuracy(clean_only) - 0.03


@pytest.mark.quick
@pytest.mark.parametrize(
    "message, change",
    [
        ("corrupted = 1.5; give the share of wrong rows", {"corrupted": 1.5}),
        ("agent 1's sources k are float64.0.; give every", {"sources": [0]}),
        ("agent 2's sources k go below 0; number", {"sources": [0, 1, 2], "least": -1}),
    ],
)
def test_what_cannot_be_is_refused(message, change):
    options = {k: v for k, v in change.items() if k == "corrupted"}
    least = lambda i: change.get("least", 0) if i == 2 else 0
    given = [
        r | ({"k": np.full(len(r["b"]), least(i))} if i in change.get("sources", ()) else {})
        for i, r in enumerate(TRAIN)
    ]
    with pytest.raises(ValueError, match=message):
        hyper_cleaning(given, VALID, classes=Q, **options)
