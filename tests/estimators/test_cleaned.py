"""Rows with wrong labels get small weights."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

from diamond.estimators import CleanedClassifier, SharedPenaltyClassifier

X, Y = load_breast_cancer(return_X_y=True)
WRONG = np.random.default_rng(0).random(len(Y)) < 0.2
LABELS = np.where(WRONG, 1 - Y, Y)


def test_wrong_rows_get_small_weights():
    model = CleanedClassifier(random_state=0).fit(X, LABELS)
    assert roc_auc_score(~WRONG, model.row_weights_) > 0.85
    assert model.score(X, Y) > 0.93
    assert model.coef_.shape == (1, 30)


@pytest.mark.wide
def test_trusted_rows_keep_their_weight():
    sites, trusted = np.arange(len(Y)) % 2, ~WRONG & (np.arange(len(Y)) < 200)
    model = CleanedClassifier().fit(X, LABELS, groups=sites, trusted=trusted)
    assert (model.row_weights_[trusted] == 1).all()
    assert roc_auc_score(~WRONG[~trusted], model.row_weights_[~trusted]) > 0.85
    assert model.coef_.shape == (2, 30)
    with pytest.raises(ValueError, match="no trusted row"):
        model.fit(X, LABELS, groups=sites, trusted=trusted & (sites == 0))
    with pytest.raises(ValueError, match="give one truth value"):
        model.fit(X, LABELS, trusted=[True])
    with pytest.raises(ValueError, match="regularizer"):
        CleanedClassifier(regularizer=0).fit(X, LABELS)


@pytest.mark.wide
def test_clean_rows_leave_the_model_a_logistic_regression():
    model = CleanedClassifier(random_state=0).fit(X, Y)
    plain = SharedPenaltyClassifier(penalty=0.01).fit(X, Y)
    assert np.mean(model.predict(X) == plain.predict(X)) > 0.95
