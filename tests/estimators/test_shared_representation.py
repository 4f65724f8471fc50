"""A representation that sites share helps sites with few rows."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from diamond.estimators import SharedRepresentationClassifier


def draw(random, rows, direction):
    X = random.normal(size=(rows, 20))
    return X, (X @ direction + 0.3 * random.normal(size=rows) > 0).astype(int)


def test_sites_share_two_directions_among_twenty():
    random = np.random.default_rng(0)
    basis = random.normal(size=(2, 20))
    directions = random.normal(size=(6, 2)) @ basis
    tables = [draw(random, 40, direction) for direction in directions]
    X, y = (np.concatenate(parts) for parts in zip(*tables))
    groups = np.repeat(np.arange(6), 40)
    model = SharedRepresentationClassifier(2, random_state=0).fit(X, y, groups=groups)
    assert model.components_.shape == (2, 20) and model.coef_.shape == (6, 20)
    assert np.linalg.matrix_rank(model.coef_, 1e-8 * np.abs(model.coef_).max()) == 2
    new = [draw(random, 500, direction) for direction in directions]
    shared = [model.score(X, y, groups=np.full(500, site)) for site, (X, y) in enumerate(new)]
    alone = [
        max(LogisticRegression(C=C).fit(*table).score(*test) for C in (0.01, 0.1, 1.0, 10.0))
        for table, test in zip(tables, new)
    ]
    assert np.mean(shared) > np.mean(alone) + 0.03


def test_the_number_of_components_is_checked():
    with pytest.raises(ValueError, match="n_components"):
        SharedRepresentationClassifier(0).fit(np.eye(8), np.arange(8) % 2)
