"""Base class of the estimators: rows of several sites, and one linear model per site."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np

try:
    from sklearn.base import BaseEstimator, is_classifier
except ModuleNotFoundError as cause:
    raise ImportError(
        "diamond.estimators needs scikit-learn, which is not installed; install it by "
        "pip install 'diamond-bilevel[sklearn]'"
    ) from cause
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from .saving import load_estimator, save_estimator


class SiteTable(NamedTuple):
    """Checked rows."""

    X: np.ndarray
    y: np.ndarray
    site: np.ndarray  # number of the site of each row
    weight: np.ndarray


class SiteEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base class of estimators with one linear model per site."""

    # With metadata routing, `groups` of a search or a cross-validation reach the estimator.
    __metadata_request__fit: ClassVar = {"groups": True}
    __metadata_request__predict: ClassVar = {"groups": True}
    __metadata_request__score: ClassVar = {"groups": True}

    coef_: np.ndarray
    intercept_: Any
    sites_: np.ndarray
    n_features_in_: int

    def save(self, path: str | Path) -> Path:
        """Save the estimator as a folder of safetensors and JSON; nothing is pickled.

        Args:
            path: folder to create.

        Returns:
            The path of the folder.
        """
        check_is_fitted(self)
        return save_estimator(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load an estimator of this class from the folder that `save` wrote.

        Args:
            path: the folder.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: the folder holds something else, or other bytes than were written.
        """
        return load_estimator(cls, Path(path))

    def _read(
        self, X: Any, y: Any, groups: Any, sample_weight: Any = None, **checks: Any
    ) -> SiteTable:
        """Check a table, and set `sites_` and the names of its features; drop rows of weight 0."""
        X, y = validate_data(
            self, X, y, dtype=np.float64, accept_sparse="csr", ensure_min_samples=2, **checks
        )
        X = X.toarray() if hasattr(X, "toarray") else X
        labels = [0] * len(X) if groups is None else _site_labels(groups, X)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not (has_weight := weight > 0).any():
            raise ValueError("sample_weight is 0 for all rows; give some rows a weight above 0")
        if missing := [row for row, label in enumerate(labels) if _is_missing(label)]:
            raise ValueError(
                f"groups has no site in row {missing[0]}; give every row of fit its site, or "
                f"groups=None for one site"
            )
        try:
            self.sites_, site = np.unique(np.asarray(labels)[has_weight], return_inverse=True)
        except TypeError as cause:
            raise ValueError(
                "groups mixes labels that have no order, such as numbers and texts; give all sites "
                "labels of one kind"
            ) from cause
        if has_weight.all():
            return SiteTable(X, y, site, weight)
        return SiteTable(X[has_weight], y[has_weight], site, weight[has_weight])

    def _set_models(self, coef: np.ndarray, intercept: np.ndarray, has_groups: bool) -> None:
        """Set `coef_` from (sites, scores, features) and `intercept_` from (sites, scores).

        With groups the first axis stays. Without, the shapes are those of scikit-learn.
        """
        if not has_groups:
            coef, intercept = coef[0], intercept[0]
            is_flat = not is_classifier(self)
        else:
            is_flat = coef.shape[1] == 1
        axis = int(has_groups)
        self.coef_ = coef.squeeze(axis) if is_flat else coef
        self.intercept_ = intercept.squeeze(axis)[()] if is_flat else intercept

    def _scores(self, X: Any, groups: Any) -> np.ndarray:
        """Return the scores (rows, scores) of the rows, by the models of their sites."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        X = X.toarray() if hasattr(X, "toarray") else X
        sites = len(self.sites_)
        coef = np.reshape(self.coef_, (sites, -1, self.n_features_in_))
        intercept = np.reshape(self.intercept_, (sites, -1))
        numbers = {label: number for number, label in enumerate(self.sites_.tolist())}
        labels = [None] * len(X) if groups is None else _site_labels(groups, X)
        site = np.array([numbers.get(label, sites) for label in labels], int)
        has = np.isfinite(intercept)  # the intercept of a class that a site does not have is -inf
        mean = lambda a: np.sum(np.where(has.reshape(a.shape[:2] + (1,) * (a.ndim - 2)), a, 0), 0)
        shares = has.sum(0)
        coef = np.concatenate([coef, [mean(coef) / shares[:, None]]])
        intercept = np.concatenate([intercept, [mean(intercept) / shares]])
        scores = np.empty((len(X), coef.shape[1]))
        for number in np.unique(site):
            rows = site == number
            scores[rows] = X[rows] @ coef[number].T + intercept[number]
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@contextmanager
def double_precision() -> Iterator[None]:
    """Compute in float64 inside the context, whatever the setting of JAX is outside."""
    with jax.enable_x64(True):
        yield


def _site_labels(groups: Any, X: np.ndarray) -> list[Any]:
    """Return one label per row as plain Python objects."""
    labels = np.asarray(groups)
    if labels.ndim != 1:
        raise ValueError(
            f"groups has shape {labels.shape}; give one dimension, with the site of each row"
        )
    check_consistent_length(X, labels)
    return list(labels.tolist())


def _is_missing(label: Any) -> bool:
    return label is None or label != label
