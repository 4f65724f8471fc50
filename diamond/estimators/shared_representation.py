"""Classifiers per site on a linear representation that all sites learn together."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from .class_labels import SiteClassifier  # explains a missing package

# isort: split

from ..gallery.representation import HeadLoss, RegularizedHeadLoss
from .site_estimator import double_precision
from .site_rows import by_site, measure_units, split_rows
from .site_solver import fit_sites, learn_shared


def _project(x: jax.Array, a: jax.Array) -> jax.Array:
    return a @ x


class SharedRepresentationClassifier(SiteClassifier):
    """Softmax regression per site, on a few linear features that all sites learn together.

    Site i has the coefficients components_' v_i, where v_i with few numbers is its own. The
    components minimize the mean over the sites of the cross-entropy on validation rows; v_i and an
    intercept minimize the cross-entropy on training rows plus |v_i|^2 / 2
    (`diamond.gallery.representation`). The scale of the components decides how much that penalizes,
    so there is no number to choose. Sites with few rows profit from the rows of others.

    Components start as principal components over all sites, whose means and products of features
    sites would share. Computation is in float64. Sparse features become dense.

    Args:
        n_components: number of linear features; None: as many as classes, or features if fewer.
        n_splits: number of splits of the rows of each site, each with heads of its own.
        validation_fraction: share of validation rows, stratified by class.
        refit: fit v_i to all rows once the components are known. False: to the training rows of the
            first split.
        accuracy: accuracy of the components, as in `diamond.solve`.
        random_state: seed of the splits.

    Attributes:
        components_: shared representation (components, features), of features in the units of the
            table.
        classes_: labels of the classes, sorted.
        coef_: with groups, coefficients (sites, features) of two classes, else (sites, classes,
            features). Without groups, (1, features) or (classes, features).
        intercept_: the same without the axis of features.
        sites_: labels of the sites, sorted; without groups one site 0.
        history_: measures of the run by name, such as `upper_loss`.
        n_iter_: rounds of the run.
        n_features_in_: number of features.
        feature_names_in_: names of the features, if X has names.

    Examples:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> model = SharedRepresentationClassifier(random_state=0).fit(X, y, groups=X[:, 4] > 98)
        >>> model.components_.shape, model.coef_.shape
        ((3, 13), (2, 3, 13))
    """

    components_: np.ndarray

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_splits: int = 4,
        validation_fraction: float = 0.25,
        refit: bool = True,
        accuracy: Any = "normal",
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.n_splits = n_splits
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.accuracy = accuracy
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn the representation and fit a model per site.

        Args:
            X: features (rows, features): an array, a table with names, or a sparse matrix.
            y: labels (rows,), numbers or texts.
            groups: site of each row; None: all rows are of one site.

        Returns:
            The estimator.
        """
        labels = self._read_labels(X, y, groups)
        table, classes = labels.table, len(self.classes_)
        width = self._width()
        units = measure_units(table.X)
        a = units.standardize(table.X)
        directions = np.linalg.svd(a, full_matrices=False)[2][:width].T
        start = np.zeros((1 + a.shape[1], width))
        start[1:, : directions.shape[1]] = directions
        rows = {"a": np.column_stack([np.ones(len(a)), a]), "b": labels.codes}
        upper = HeadLoss(_project, classes)
        lower = RegularizedHeadLoss(upper, 1.0)
        split = split_rows(self, rows, table.site, labels.codes, self.sites_)
        with double_precision():
            y = {"w": jnp.zeros((width, classes)), "b": jnp.zeros(classes)}
            run = learn_shared(upper, lower, start, y, split.train, split.valid, self.accuracy)
            x = np.mean(run.x, 0)
            fitted = split.first_train | self.refit
            heads = fit_sites(upper, lower, x, y, by_site(rows, table.site, fitted))
        x = x[: 1 + self.n_features_in_]
        self.history_, self.n_iter_ = dict(run.history), run.rounds
        self.components_ = x[1:].T / units.deviation
        v = heads["w"].swapaxes(1, 2)  # (sites, classes, components)
        intercept = heads["b"] + v @ x[0]
        if classes == 2:
            v, intercept = np.diff(v, axis=1), np.diff(intercept, axis=1)
        coef = v @ self.components_
        self._set_models(coef, intercept - coef @ units.mean, groups is not None)
        return self

    def _width(self) -> int:
        """Return the number of components."""
        if self.n_components is None:
            return min(len(self.classes_), self.n_features_in_)
        if not isinstance(self.n_components, int | np.integer) or self.n_components < 1:
            raise ValueError(
                f"n_components = {self.n_components!r}; give a whole number above 0, or None"
            )
        return int(self.n_components)
