"""Cox regression per site, whose penalties all sites learn together."""

from typing import Any, ClassVar, Self

import numpy as np

from ..core.pytrees import Tree
from ..gallery.linear_losses import partial_likelihood
from .shared_penalty import SharedPenalty, Target  # explains a missing package
from .site_rows import rounded_size

# isort: split
from sklearn.utils.validation import check_consistent_length

TIED_SCORES = 1e-8  # difference of scores that counts as a tie


class SharedPenaltySurvival(SharedPenalty):
    """Cox regression per site for censored times, with penalties that all sites learn together.

    Site i with n_i rows has coefficients w_i and a baseline hazard of its own: the hazard of row r
    is hazard_i(t) exp(X_r w_i). The coefficients minimize the negative log partial likelihood with
    Breslow's ties,

        1/n_i sum_(events r) (log sum_(t_s >= t_r) exp(X_s w_i) - X_r w_i)
            + 1/2 sum_j penalties_j w_ij^2,

    where the risk sets are rows of the site. The rest is as in `SharedPenaltyRegressor`; splits are
    stratified by event, and the validation loss is the partial likelihood of the validation rows.
    Every site needs two events.

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
        coef_: coefficients (sites, features), log hazard ratios per unit of a feature; without
            groups (features,).
        intercept_: 0, since the baseline hazard has the level.
        penalties_: penalty of each feature in the units of the table, as in the formula.
        l1_penalties_: with `elastic_net`, factor of the absolute value of each coefficient.
        sites_: labels of the sites, sorted; without groups one site 0.
        history_: measures of the run by name, such as `upper_loss`; empty for a given penalty.
        n_iter_: rounds of the run.
        n_features_in_: number of features.
        feature_names_in_: names of the features, if X has names.

    Examples:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> y = np.zeros(200, [("event", bool), ("time", float)])
        >>> y["event"], y["time"] = True, np.exp(-X[:, 0])
        >>> model = SharedPenaltySurvival(penalty=0.01).fit(X, y)
        >>> bool(model.score(X, y) > 0.9)
        True
    """

    no_federation: ClassVar = "no problem of the gallery has censored times; write one in Python"

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Learn the penalties and fit a model per site.

        Args:
            X: features (rows, features): an array, a table with names, or a sparse matrix.
            y: structured array (rows,) of a truth value, whether the event was observed, and a
                number, the time of the event or of censoring, as in scikit-survival.
            groups: site of each row; None: all rows are of one site.
            sample_weight: weight of each row, as in `SharedPenaltyRegressor.fit`.

        Returns:
            The estimator.
        """
        times = np.column_stack(_read_times(y))
        table = self._read(X, times, groups, sample_weight, multi_output=True)
        event, time = table.y[:, 0] == 1, table.y[:, 1]
        if (events := np.bincount(table.site, event)).min() < 2:
            site = self.sites_.tolist()[int(events.argmin())]
            raise ValueError(
                f"site {site!r} has {events.min():.0f} event(s), too few for a partial likelihood; "
                f"merge the site with another, or leave it out of fit: predict then uses the mean "
                f"of the other models"
            )
        rows = {"event": event, "time": time}
        target = Target(partial_likelihood, rows, event.astype(int), arrange=order_by_time)
        self._fit(table, target, groups is not None)
        self.intercept_ = np.zeros_like(self.intercept_)[()]
        return self

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """Return the risk scores X w of rows: a larger score is an earlier event.

        Args:
            X: features.
            groups: site of each row. Rows of other sites, and without groups all rows if there are
                several sites, use the mean of the models.

        Returns:
            Scores (rows,), logarithms of hazards relative to the baseline of the site.
        """
        return self._scores(X, groups)[:, 0]

    def score(self, X: Any, y: Any, groups: Any = None) -> float:
        """Return Harrell's concordance index; arguments as in `fit` and `predict`.

        With groups it compares rows of one site only, since baseline hazards differ.
        """
        scores, (event, time) = self.predict(X, groups), _read_times(y)
        check_consistent_length(scores, time)
        labels = [0] * len(scores) if groups is None else np.asarray(groups).tolist()
        numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        site, pairs = np.array([numbers[label] for label in labels]), np.zeros(2)
        for number in numbers.values():
            rows = site == number
            pairs += count_concordant_pairs(event[rows], time[rows], scores[rows])
        if not pairs[1]:
            raise ValueError(
                "y has no two rows of a site whose order of events is known, so there is no "
                "concordance index; give more rows"
            )
        return float(pairs[0] / pairs[1])


def order_by_time(tables: list[Tree]) -> list[Tree]:
    """Return each table as one row: its rows in descending time, padded by rows without weight.

    A padding row comes last, so that it is in the risk set of no other row. `last` is the last row
    that is at risk with a row, `at_risk` the weight of the row, and `weight` is this weight by the
    sum of all for an event, and 0 otherwise.
    """
    length = rounded_size(max(len(table["time"]) for table in tables))

    def arrange(table: Tree) -> Tree:
        order = np.argsort(-table["time"], kind="stable")
        time, count = table["time"][order], len(order)
        leaves = {
            "a": table["a"][order],
            "last": np.searchsorted(-time, -time, side="right").astype(np.int32) - 1,
            "at_risk": (weight := table["weight"][order]),
            "weight": table["event"][order] * weight / weight.sum(),
        }
        pad = lambda a: np.pad(a, [(0, length - count)] + [(0, 0)] * (a.ndim - 1))[None]
        return {name: pad(leaf) for name, leaf in leaves.items()}

    return [arrange(table) for table in tables]


def count_concordant_pairs(
    event: np.ndarray, time: np.ndarray, scores: np.ndarray
) -> tuple[float, float]:
    """Return how many pairs of rows the scores order as the times do, and how many have an order.

    A pair has an order if the earlier time is that of an event; at equal times an event is before
    a censored row. Equal scores count half.
    """
    concordant, ordered = 0.0, 0
    for row in np.flatnonzero(event):
        later = scores[(time > time[row]) | ((time == time[row]) & ~event)]
        is_tied = np.abs(later - scores[row]) <= TIED_SCORES
        concordant += float(np.sum(np.where(is_tied, 0.5, later < scores[row])))
        ordered += len(later)
    return concordant, float(ordered)


def _read_times(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each row has an event, and its time."""
    y = np.asarray(y)
    kinds = {y.dtype[name].kind: name for name in y.dtype.names or ()}
    is_pair = len(y.dtype.names or ()) == 2 and "b" in kinds and {*"iuf"} & {*kinds}
    if not is_pair or y.ndim != 1:
        raise ValueError(
            f"y is an array of {y.dtype} with shape {y.shape}; give a structured array (rows,) of "
            f"a truth value and a time: np.array([(True, 2.5), ...], [('event', bool), ('time', "
            f"float)]), or frame[['event', 'time']].to_records(index=False)"
        )
    event = y[kinds.pop("b")]
    time = y[next(iter(kinds.values()))].astype(float)
    if len(time) and time.min() < 0:
        row = int(time.argmin())
        raise ValueError(f"y has time {time[row]:g} in row {row}; give times of 0 and above")
    return event, time
