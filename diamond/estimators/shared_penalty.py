"""Linear regression per site whose penalties all sites learn together."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import jax.numpy as jnp
import numpy as np

from .site_estimator import SiteTable, double_precision  # explains a missing package

# isort: split
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from ..core.pytrees import Tree
from ..gallery import linear_losses
from ..gallery.feature_penalties import (
    BoundedPenalties,
    GroupedPenalties,
    PenalizedLoss,
    group_features,
)
from ..gallery.linear_losses import LinearLoss
from .federation import FederatedEstimator
from .site_rows import by_site, measure_units, split_rows
from .site_solver import Loss, fit_sites, learn_shared

QUANTILE_SMOOTHING = 0.05  # standard deviations of the target
Penalties = Literal["feature", "shared"] | Mapping[Any, Any] | Sequence[Any]


def normalize_weights(tables: list[Tree]) -> list[Tree]:
    """Return each table with weights whose mean is 1."""
    return [rows | {"weight": rows["weight"] / np.mean(rows["weight"])} for rows in tables]


class Target(NamedTuple):
    """The targets of a fit, and what they say of coefficients in the units of the table."""

    loss: Loss
    rows: dict[str, np.ndarray]  # leaves of the rows beside the features
    strata: np.ndarray
    shift: float = 0.0  # added to the intercept
    unit: float = 1.0  # unit of the scores
    loss_unit: float = 1.0
    scores: int | None = None  # number of scores of a row; None: one, without an axis
    # Makes the rows of the loss, site by site.
    arrange: Callable[[list[Tree]], list[Tree]] = normalize_weights


class SharedPenalty(FederatedEstimator):
    """Base class of the estimators with learned penalties."""

    def __init__(
        self,
        *,
        penalties: Penalties = "shared",
        penalty: float | None = None,
        elastic_net: bool = False,
        smoothing: float = 0.01,
        n_splits: int = 4,
        validation_fraction: float = 0.25,
        refit: bool = True,
        accuracy: float | Literal["rough", "normal", "exact"] = "normal",
        random_state: Any = None,
    ):
        self.penalties = penalties
        self.penalty = penalty
        self.elastic_net = elastic_net
        self.smoothing = smoothing
        self.n_splits = n_splits
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.accuracy = accuracy
        self.random_state = random_state

    def _fit(self, table: SiteTable, target: Target, has_groups: bool) -> Self:
        """Learn the penalties, and fit the models of the sites."""
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        units, count = measure_units(table.X, table.weight), self.n_features_in_
        rows = {"a": units.standardize(table.X), "weight": table.weight} | target.rows
        size = rows["a"].shape[1]
        if not 0 < self.smoothing < np.inf:
            raise ValueError(f"smoothing = {self.smoothing!r}; give a number above 0, as 0.01")
        penalized = PenalizedLoss(
            target.loss, _weights, self.smoothing if self.elastic_net else None
        )
        lower = GroupedPenalties(penalized, group_features(self.penalties, [*names], size).groups)
        shape = () if target.scores is None else (target.scores,)
        fitted = np.ones(len(table.X), bool)
        with double_precision():
            y = {"w": jnp.zeros((size, *shape)), "b": jnp.zeros(shape)}
            if self.penalty is not None:
                x = lower.log_penalties(self._given_penalty(), y["w"].size)
                self.history_: dict[str, np.ndarray] = {}
                self.n_iter_ = 0
            else:
                split = split_rows(self, rows, table.site, target.strata, self.sites_)
                bounded = BoundedPenalties(lower, y["w"].size)
                start = np.zeros(lower.size)
                train, valid = target.arrange(split.train), target.arrange(split.valid)
                run = learn_shared(target.loss, bounded, start, y, train, valid, self.accuracy)
                x = np.asarray(bounded.log_penalties(np.mean(run.x, 0)))
                self.history_, self.n_iter_ = dict(run.history), run.rounds
                fitted = split.first_train | self.refit
            all_rows = target.arrange(by_site(rows, table.site, fitted))
            models = fit_sites(target.loss, lower, x, y, all_rows)
        weights = models["w"].reshape(len(self.sites_), size, -1)[:, :count].swapaxes(1, 2)
        coef = target.unit * weights / units.deviation
        intercept = target.unit * models["b"].reshape(len(self.sites_), -1) + target.shift
        self._set_models(coef, intercept - coef @ units.mean, has_groups)
        factors = np.exp(lower.by_feature(x)) / y["w"].size  # the loss has means
        scale = units.deviation / target.unit  # a standardized coefficient per coefficient
        self.penalties_ = target.loss_unit * 2 * factors[:count] * scale**2
        if self.elastic_net:
            self.l1_penalties_ = target.loss_unit * factors[size : size + count] * scale
        return self

    def _given_penalty(self) -> float:
        """Return the checked penalty."""
        if not isinstance(self.penalty, Real) or not 0 < self.penalty < np.inf:
            raise ValueError(
                f"penalty = {self.penalty!r}; give a number above 0, or None to learn penalties"
            )
        return float(self.penalty)


def _weights(y: Any) -> Any:
    return y["w"]


class SharedPenaltyRegressor(RegressorMixin, SharedPenalty):  # type: ignore[misc]
    """Linear regression per site, with penalties that all sites learn together.

    Site i with n_i rows has coefficients w_i and an intercept b_i, which minimize

        1/n_i sum_r loss(y_r, X_r w_i + b_i) + 1/2 sum_j penalties_j w_ij^2.

    The rows of each site are split at random, several times. The penalties, which all sites share,
    minimize the mean over sites and splits of the loss on validation rows, where w_i and b_i are
    fitted to the training rows (`diamond.solve`). With `refit` the models are then fitted to all
    rows of their sites.

    Features and targets are standardized for the fit, by means and deviations over all sites.
    If sites kept their rows, the sums behind these numbers and the hypergradients of the penalties
    would leave a site, and nothing else. Computation is in float64. Sparse features become dense.

    Args:
        loss: "squared" (half of the squared error), "poisson" (half of the deviance, with a log
            link), or "quantile" (pinball loss, with its kink rounded over 5 % of the deviation of
            the target).
        quantile: level of the quantile, between 0 and 1.
        penalties: "shared": one for all features; "feature": one per feature, which overfits sites
            with few rows; labels of the features: one per label; or a mapping from features (names,
            or numbers if X has no names) to labels, where other features have penalties of their
            own. Features with one penalty share it in units of their deviations.
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
        coef_: coefficients (sites, features); without groups (features,).
        intercept_: intercepts (sites,); without groups a number.
        penalties_: penalty of each feature in the units of the table, as in the formula.
        l1_penalties_: with `elastic_net`, factor of the absolute value of each coefficient.
        sites_: labels of the sites, sorted; without groups one site 0.
        history_: measures of the run by name, such as `upper_loss`; empty for a given penalty.
        n_iter_: rounds of the run.
        n_features_in_: number of features.
        feature_names_in_: names of the features, if X has names.

    Examples:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = SharedPenaltyRegressor(random_state=0).fit(X, y, groups=X[:, 1] > 0)
        >>> model.coef_.shape, model.penalties_.shape
        ((2, 10), (10,))
    """

    def __init__(
        self,
        loss: Literal["squared", "poisson", "quantile"] = "squared",
        *,
        quantile: float = 0.5,
        penalties: Penalties = "shared",
        penalty: float | None = None,
        elastic_net: bool = False,
        smoothing: float = 0.01,
        n_splits: int = 4,
        validation_fraction: float = 0.25,
        refit: bool = True,
        accuracy: float | Literal["rough", "normal", "exact"] = "normal",
        random_state: Any = None,
    ):
        self.loss = loss
        self.quantile = quantile
        super().__init__(
            penalties=penalties,
            penalty=penalty,
            elastic_net=elastic_net,
            smoothing=smoothing,
            n_splits=n_splits,
            validation_fraction=validation_fraction,
            refit=refit,
            accuracy=accuracy,
            random_state=random_state,
        )

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Learn the penalties and fit a model per site.

        Args:
            X: features (rows, features): an array, a table with names, or a sparse matrix.
            y: targets (rows,).
            groups: site of each row; None: all rows are of one site.
            sample_weight: weight of each row in the means of its site; a whole number is as many
                equal rows, but that splits do not tear them apart.

        Returns:
            The estimator.
        """
        table = self._read(X, y, groups, sample_weight, y_numeric=True)
        return self._fit(table, self._target(table), groups is not None)

    def _target(self, table: SiteTable) -> Target:
        """Return the targets in the units of the fit."""
        y, strata = table.y.astype(float), np.zeros(len(table.y), int)
        mean = np.average(y, weights=table.weight)
        make = lambda row_loss, targets, **units: Target(
            LinearLoss(row_loss), {"b": targets}, strata, **units
        )
        if self.loss == "poisson":
            if y.min() < 0:
                raise ValueError(
                    f"y has {y.min():g} in row {int(y.argmin())}, but loss='poisson' needs counts; "
                    f"give targets of 0 and above"
                )
            totals = np.bincount(table.site, y * table.weight)
            if not totals.all():
                raise ValueError(
                    f"site {self.sites_.tolist()[int(totals.argmin())]!r} has counts of 0 only, so "
                    f"loss='poisson' has no best intercept there; merge the site with another"
                )
            return make(linear_losses.poisson, y / mean, shift=np.log(mean), loss_unit=mean)
        unit = float(np.sqrt(np.average((y - mean) ** 2, weights=table.weight))) or 1.0
        if self.loss == "squared":
            units = {"shift": mean, "unit": unit, "loss_unit": unit**2}
            return make(linear_losses.squared, (y - mean) / unit, **units)
        if self.loss != "quantile":
            raise ValueError(f"loss = {self.loss!r}; there are 'squared', 'poisson', 'quantile'")
        if not 0 < self.quantile < 1:
            raise ValueError(f"quantile = {self.quantile!r}; give a level between 0 and 1")
        pinball = linear_losses.Quantile(float(self.quantile), QUANTILE_SMOOTHING)
        return make(pinball, (y - mean) / unit, shift=mean, unit=unit, loss_unit=unit)

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """Predict the targets of rows.

        Args:
            X: features.
            groups: site of each row. Rows of other sites, and without groups all rows if there are
                several sites, use the mean of the models.

        Returns:
            Predictions (rows,): with loss="poisson" means of counts, with "quantile" quantiles.
        """
        scores = self._scores(X, groups)[:, 0]
        return np.exp(scores) if self.loss == "poisson" else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Return the coefficient of determination R^2; arguments as in `predict`."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))
