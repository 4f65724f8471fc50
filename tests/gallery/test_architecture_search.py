"""Architecture search, against numpy of its operations."""

import jax
import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from scipy import ndimage

from diamond.gallery import architecture_search
from diamond.gallery.architecture_search import OPERATIONS
from diamond.gallery.stored_predictions import describe_model, stored_prediction

RANDOM = np.random.default_rng(6)
SMALL = dict(classes=2, channels=2, layers=1, shape=(4, 4, 1))


def rows(count=6):
    return {"a": RANDOM.normal(size=(count, 16)), "b": RANDOM.integers(0, 2, count)}


def test_every_operation_is_its_formula(monkeypatch):
    skip_loss_checks(monkeypatch)
    problem = architecture_search([rows()], [rows()], **SMALL)
    y = jax.tree.map(lambda a: RANDOM.normal(size=a.shape), problem.start(0)[1])
    own = rows()
    images = own["a"].reshape(6, 4, 4)
    kernels, levels = y["layers"][0]["w"].reshape(3, 3, 2), y["layers"][0]["b"]
    correlate = lambda k: ndimage.correlate(images, kernels[None, :, :, k], mode="constant")
    copies = lambda values: np.stack([values] * 2, -1)
    padded = dict(size=(1, 3, 3), mode="constant")
    outcomes = {
        "identity": copies(images),
        "average": copies(ndimage.uniform_filter(images, **padded)),
        "maximum": copies(ndimage.maximum_filter(images, **padded)),
        "convolution": np.stack([np.maximum(correlate(k) + levels[k], 0) for k in range(2)], -1),
    }
    assert tuple(outcomes) == OPERATIONS
    scores = lambda outcome: (
        outcome.reshape(6, 2, 2, 2, 2, 2).mean((2, 4)).reshape(6, -1) @ y["w"] + y["b"]
    )
    x = RANDOM.normal(size=(1, 4))
    (weights,) = np.exp(x) / np.exp(x).sum()
    mixed = scores(sum(w * outcome for w, outcome in zip(weights, outcomes.values())))
    shares = np.exp(mixed) / np.exp(mixed).sum(1, keepdims=True)
    np.testing.assert_allclose(problem.predict(x, y, own), shares, rtol=1e-9)
    stored = stored_prediction(describe_model("architecture_search", {"shape": (4, 4, 1)}), 16, 2)
    np.testing.assert_allclose(stored(x, y, own), shares, rtol=1e-9)
    loss = -np.log(shares[np.arange(6), own["b"]]).mean()
    square = sum(np.sum(leaf**2) for leaf in jax.tree.leaves(y))
    found = problem.upper(x, y, own), problem.lower(x, y, own)
    np.testing.assert_allclose(found, [loss, loss + 1e-3 * square], rtol=1e-9)
    right = np.mean(mixed.argmax(1) == own["b"])
    np.testing.assert_allclose(problem.metrics["accuracy"](x, y, own), right, rtol=1e-6)
    best = OPERATIONS[x[0].argmax()]
    assert problem.architecture(np.stack([x, x])) == [best]
    np.testing.assert_allclose(problem.mixture(x), [weights], rtol=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"layers": 0}, "layers = 0"),
        ({"shape": (2, 4, 1)}, "but rows have 16 features"),
        ({"shape": (2, 4, 2), "channels": 3}, "channels = 3; give a multiple of 2, the colors"),
    ],
)
def test_a_network_that_cannot_be_is_refused(wrong, message, monkeypatch):
    skip_loss_checks(monkeypatch)
    with pytest.raises(ValueError, match=message):
        architecture_search([rows()], [rows()], **SMALL | wrong)
