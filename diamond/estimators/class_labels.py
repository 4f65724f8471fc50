"""Classifiers by linear scores: their labels, and what they predict."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import expit, log_softmax, softmax

from .site_estimator import SiteEstimator, SiteTable  # explains a missing package

# isort: split
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets


class Labels(NamedTuple):
    """Labels of a table, numbered from 0."""

    table: SiteTable
    codes: np.ndarray  # number of the class of each row
    site_has: np.ndarray  # (sites, classes), whether the site has rows of the class


class SiteClassifier(ClassifierMixin, SiteEstimator):  # type: ignore[misc]
    """Base class of classifiers with one linear model per site."""

    __metadata_request__decision_function: ClassVar = {"groups": True}
    __metadata_request__predict_proba: ClassVar = {"groups": True}
    __metadata_request__predict_log_proba: ClassVar = {"groups": True}

    classes_: np.ndarray

    def _read_labels(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> Labels:
        """Check a table with labels, and set `classes_`."""
        table = self._read(X, y, groups, sample_weight)
        check_classification_targets(table.y)
        self.classes_, codes = np.unique(table.y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class, {self.classes_.tolist()[0]!r}; give rows of two classes or more"
            )
        site_has = np.zeros((len(self.sites_), len(self.classes_)), bool)
        site_has[table.site, codes] = True
        if (counts := site_has.sum(1)).min() < 2:
            site = self.sites_.tolist()[int(np.argmin(counts))]
            raise ValueError(
                f"site {site!r} has rows of one class only; merge the site with "
                f"another, or leave it out of fit: predict then uses the mean of the other models"
            )
        return Labels(table, codes.astype(np.int32), site_has)

    def decision_function(self, X: Any, groups: Any = None) -> np.ndarray:
        """Return the scores of rows.

        Args:
            X: features.
            groups: site of each row; the mean of the models is used for other rows.

        Returns:
            Scores (rows,) of the second class if there are two classes, else (rows, classes).
        """
        scores = self._scores(X, groups)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        """Return the probabilities (rows, classes); arguments as in `decision_function`."""
        scores = self.decision_function(X, groups)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return np.asarray(softmax(scores, axis=1))

    def predict_log_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        """Return the logarithms of `predict_proba`."""
        scores = self.decision_function(X, groups)
        pair = np.column_stack([0 * scores, scores]) if scores.ndim == 1 else scores
        return np.asarray(log_softmax(pair, axis=1))

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """Return the most probable classes; arguments as in `decision_function`."""
        scores = self.decision_function(X, groups)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        return self.classes_[codes]

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Return the accuracy; arguments as in `decision_function`."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))
