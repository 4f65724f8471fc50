"""Classifiers that find rows with wrong labels, and learn to ignore them."""

from typing import Any, Self

import numpy as np

from .class_labels import Labels, SiteClassifier  # explains a missing package

# isort: split
from scipy.special import expit
from sklearn.utils import check_random_state

from ..gallery import softmax_regression
from ..gallery.hyper_cleaning import CleanedLoss
from ..gallery.linear_losses import wrong_probability
from .site_estimator import double_precision
from .site_rows import by_site, choose_validation_rows, measure_units, rounded_size
from .site_solver import fit_sites, learn_shared


class CleanedClassifier(SiteClassifier):
    """Logistic regression per site, in which every training row has a learned weight.

    Site i has coefficients w_i and intercepts b_i, one per class, which minimize

        1/n_i sum_r weight_r cross-entropy(y_r, X_r w_i + b_i) + regularizer (|w_i|^2 + |b_i|^2),

    with standardized features. The weights minimize the mean over the sites of the cross-entropy
    on trusted rows (`diamond.gallery.hyper_cleaning`). Without trusted rows, each half of the rows
    gets weights that minimize the mean probability of wrong classes on the other half, which rows
    with wrong labels change little. A row that misleads the model gets a weight near 0. With two
    classes the coefficients are differences.

    Means and deviations are those of all sites. Computation is in float64. Sparse features become
    dense.

    Args:
        regularizer: weight of the squares.
        accuracy: accuracy of the weights, as in `diamond.solve`.
        random_state: seed of the halves.

    Attributes:
        row_weights_: weight of each row of `fit`, between 0 and 1; trusted rows have 1.
        classes_: labels of the classes, sorted.
        coef_: with groups, coefficients (sites, features) of two classes, else (sites, classes,
            features). Without groups, (1, features) or (classes, features).
        intercept_: the same without the axis of features.
        sites_: labels of the sites, sorted; without groups one site 0.
        history_: measures of the last run by name.
        n_iter_: rounds of all runs.
        n_features_in_: number of features.
        feature_names_in_: names of the features, if X has names.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> y[:10] = 1 - y[:10]
        >>> model = CleanedClassifier(random_state=0).fit(X, y)
        >>> bool(model.row_weights_[:10].mean() < model.row_weights_[10:].mean())
        True
    """

    row_weights_: np.ndarray

    def __init__(
        self,
        *,
        regularizer: float = 1e-2,
        accuracy: Any = "rough",
        random_state: Any = None,
    ):
        self.regularizer = regularizer
        self.accuracy = accuracy
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None, trusted: Any = None) -> Self:
        """Learn the weights of the rows and fit a model per site.

        Args:
            X: features (rows, features): an array, a table with names, or a sparse matrix.
            y: labels (rows,), numbers or texts.
            groups: site of each row; None: all rows are of one site.
            trusted: whether the label of each row is known to be right; every site needs some of
                both kinds. None: no label is.

        Returns:
            The estimator.
        """
        if not 0 < self.regularizer < np.inf:
            raise ValueError(f"regularizer = {self.regularizer!r}; give a number above 0, as 0.01")
        labels = self._read_labels(X, y, groups)
        table, codes, classes = labels.table, labels.codes, len(self.classes_)
        units = measure_units(table.X)
        count, number = self.n_features_in_, np.arange(len(codes))
        rows = {"a": units.standardize(table.X), "b": codes, "k": number}
        logits, lower = np.full(len(codes), np.inf), CleanedLoss(self.regularizer)
        zeros = np.zeros(rounded_size(len(codes)))
        self.n_iter_ = 0
        with double_precision():
            upper = wrong_probability if trusted is None else softmax_regression.upper
            y = softmax_regression.zeros(rows["a"].shape[1], classes)
            for is_valid in self._validation_parts(labels, trusted):
                train, valid = (by_site(rows, table.site, part) for part in (~is_valid, is_valid))
                run = learn_shared(upper, lower, zeros, y, train, valid, self.accuracy)
                logits[~is_valid] = np.mean(run.x, 0)[number[~is_valid]]
                self.history_, self.n_iter_ = dict(run.history), self.n_iter_ + run.rounds
            all_rows = by_site(rows, table.site, codes >= 0)
            x = np.concatenate([logits, zeros[len(codes) :]])
            models = fit_sites(upper, lower, x, y, all_rows)
        self.row_weights_ = expit(logits)
        coef, intercept = models["w"][:, :count].swapaxes(1, 2), models["b"]
        if classes == 2:
            coef, intercept = np.diff(coef, axis=1), np.diff(intercept, axis=1)
        coef = coef / units.deviation
        self._set_models(coef, intercept - coef @ units.mean, groups is not None)
        return self

    def _validation_parts(self, labels: Labels, trusted: Any) -> list[np.ndarray]:
        """Return which rows validate: the trusted rows, or each half in turn."""
        number = labels.table.site
        if trusted is None:
            random = check_random_state(self.random_state)
            half = choose_validation_rows(number, labels.codes, 0.5, random)
            parts, cause = [half, ~half], "has too few rows for two halves"
        else:
            parts, cause = [np.asarray(trusted, bool)], "has no trusted row, or no other"
            if parts[0].shape != number.shape:
                raise ValueError(
                    f"trusted has shape {parts[0].shape} for {len(number)} rows; give one truth "
                    f"value per row"
                )
        counts = np.bincount(number, parts[0], len(self.sites_))
        is_wrong = (counts == 0) | (counts == np.bincount(number))
        if is_wrong.any():
            site = self.sites_.tolist()[int(is_wrong.argmax())]
            raise ValueError(
                f"site {site!r} {cause}; give this site more rows, or merge the site with another"
            )
        return parts
