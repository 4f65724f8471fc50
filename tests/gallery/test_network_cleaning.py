"""Cleaning of a network: convolutions and normalization against numpy, AUC, and a run."""

import jax
import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from helpers import ring

import diamond
from diamond.gallery import _convolutions, network_cleaning
from diamond.gallery._separation import auc

RANDOM = np.random.default_rng(5)


def written_out(y, image):
    """The scores of one image, pixel by pixel."""
    for block in y["blocks"]:
        h, w, _ = image.shape
        padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))
        out = np.zeros((h, w, block["w"].shape[-1]))
        for i in range(h):
            for j in range(w):
                patch = padded[i : i + 3, j : j + 3]
                out[i, j] = np.tensordot(patch, block["w"], 3)
        channels = out.shape[-1]
        size = np.gcd(8, channels)
        for first in range(0, channels, size):
            group = out[..., first : first + size]
            out[..., first : first + size] = (group - group.mean()) / np.sqrt(group.var() + 1e-5)
        out = np.maximum(out * block["scale"] + block["shift"], 0)
        if min(h, w) > 2:
            corners = [out[i : h // 2 * 2 : 2, j : w // 2 * 2 : 2] for i in (0, 1) for j in (0, 1)]
            out = np.mean(corners, 0)
        image = out
    return image.mean((0, 1)) @ y["w"] + y["b"]


@pytest.mark.quick
def test_the_network_is_the_one_written_out():
    start = _convolutions.initialize(jax.random.key(0), 3, (4, 16), 5)
    y = jax.tree.map(lambda leaf: leaf + 0.3 * RANDOM.normal(size=leaf.shape), start)
    images = RANDOM.normal(size=(2, 5, 6, 3))
    expected = [written_out(jax.tree.map(np.asarray, y), image) for image in images]
    np.testing.assert_allclose(_convolutions.logits(y, images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.quick
def test_auc_counts_pairs():
    scores = RANDOM.integers(0, 5, 40).astype(float)
    is_right = RANDOM.random(40) < 0.6
    pairs = np.sign(scores[is_right][:, None] - scores[~is_right]) / 2 + 0.5
    np.testing.assert_allclose(auc(jax.numpy.asarray(scores), is_right), pairs.mean(), rtol=1e-6)


@pytest.mark.quick
def test_shapes_of_images():
    assert _convolutions.image_shape(64) == (8, 8, 1)
    assert _convolutions.image_shape(3072) == (32, 32, 3)
    with pytest.raises(ValueError, match="rows of 30 features are no square images"):
        _convolutions.image_shape(30)


def stripes(count, random):
    """Images of horizontal or vertical stripes with noise."""
    b = random.integers(0, 2, count)
    pattern = np.resize([1.0, -1.0], 6)[:, None] * np.ones(6)
    images = np.where(b[:, None, None], pattern, pattern.T) + 0.5 * RANDOM.normal(
        size=(count, 6, 6)
    )
    return {"a": images.reshape(count, 36).astype(np.float32), "b": b}


def test_a_run_without_numbers_finds_wrong_labels(monkeypatch):
    skip_loss_checks(monkeypatch)
    random = np.random.default_rng(0)
    parts = [[stripes(count, random) for _ in range(2)] for count in (48, 32, 64)]
    problem = network_cleaning(*parts, classes=2, corrupted=0.3, channels=(8,))
    assert problem.wrong.sum() == round(0.3 * 96) and not problem.has_lower_solution
    run = diamond.solve(problem, ring(2), rounds=80, batch=16, every=80, progress=False)
    assert problem.auc(run.x) > 0.95
    np.testing.assert_allclose(problem.auc(run.last_x), run.history["auc"][-1], atol=0.01)
    assert run.history["accuracy"][-1] > 0.9


@pytest.mark.quick
def test_a_shape_must_fit_the_rows():
    rows = [stripes(4, RANDOM)]
    with pytest.raises(ValueError, match=r"shape = \(5, 5, 1\), but rows have 36 features"):
        network_cleaning(rows, rows, classes=2, shape=(5, 5, 1))
