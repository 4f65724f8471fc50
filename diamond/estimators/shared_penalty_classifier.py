"""Logistic regression per site, whose penalties all sites learn together."""

from typing import Any, ClassVar, Self

import numpy as np

from ..gallery import linear_losses
from ..gallery.linear_losses import LinearLoss
from .class_labels import SiteClassifier
from .shared_penalty import SharedPenalty, Target


class SharedPenaltyClassifier(SiteClassifier, SharedPenalty):
    """Logistic regression per site, with penalties that all sites learn together.

    Site i with n_i rows has coefficients w_i and intercepts b_i, which minimize

        1/n_i sum_r cross-entropy(y_r, X_r w_i + b_i) + 1/2 sum_j penalties_j |w_ij|^2.

    With two classes w_ij is one number, with more it has one entry per class. The rest is as in
    `SharedPenaltyRegressor`; splits are stratified by class. Every site needs rows of two classes.
    A class that a site does not have has probability 0 there.

    Args:
        penalties: as in `SharedPenaltyRegressor`.
        penalty: penalty of all standardized features; nothing is learned then.
        elastic_net: also learn penalties of absolute values, smoothed as sqrt(w^2 + s^2) - s.
        smoothing: s, in units of standardized coefficients.
        n_splits: number of splits of the rows of each site. Each has models of its own, and the
            penalties minimize the mean of their losses.
        validation_fraction: share of validation rows.
        refit: fit the models to all rows once the penalties are known. False: to the training rows
            of the first split.
        accuracy: accuracy of the penalties, as in `diamond.solve`.
        random_state: seed of the splits.

    Attributes:
        classes_: labels of the classes, sorted.
        coef_: with groups, coefficients (sites, features) of two classes, else (sites, classes,
            features). Without groups, (1, features) or (classes, features).
        intercept_: the same without the axis of features; -inf for a class that a site lacks.
        penalties_: penalty of each feature in the units of the table, as in the formula.
        l1_penalties_: with `elastic_net`, factor of the absolute value of each coefficient.
        sites_: labels of the sites, sorted; without groups one site 0.
        history_: measures of the run by name, such as `upper_loss`; empty for a given penalty.
        n_iter_: rounds of the run.
        n_features_in_: number of features.
        feature_names_in_: names of the features, if X has names.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = SharedPenaltyClassifier(random_state=0).fit(X, y, groups=X[:, 1] > 19)
        >>> model.coef_.shape, model.predict_proba(X[:1]).shape
        ((2, 30), (1, 2))
    """

    federated_problem: ClassVar = "hyperparameter"

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Learn the penalties and fit a model per site.

        Args:
            X: features (rows, features): an array, a table with names, or a sparse matrix.
            y: labels (rows,), numbers or texts.
            groups: site of each row; None: all rows are of one site.
            sample_weight: weight of each row in the means of its site; a whole number is as many
                equal rows, but that splits do not tear them apart.

        Returns:
            The estimator.
        """
        labels = self._read_labels(X, y, groups, sample_weight)
        codes = labels.codes
        if len(self.classes_) == 2:
            rows = {"b": codes.astype(float)}
            target = Target(LinearLoss(linear_losses.logistic), rows, codes)
        else:
            rows = {"b": codes, "m": labels.site_has[labels.table.site]}
            target = Target(linear_losses.multinomial, rows, codes, scores=len(self.classes_))
        self._fit(labels.table, target, groups is not None)
        if len(self.classes_) > 2:
            self.intercept_ = np.where(labels.site_has, self.intercept_, -np.inf).reshape(
                np.shape(self.intercept_)
            )
        return self
