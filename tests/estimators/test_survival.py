"""Cox regression: coefficients are those of a dense Newton method on the partial likelihood."""

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_score

from diamond.estimators import SharedPenaltySurvival
from diamond.estimators.site_rows import choose_validation_rows
from diamond.estimators.survival import count_concordant_pairs

TIMES = [("event", bool), ("time", float)]


def make_table(rows=150, digits=1):
    """Rows with censored times; a digit after the point makes ties."""
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, 3)) * [1.0, 10.0, 0.1] + 5
    time = random.exponential(np.exp(3.5 - 0.8 * X[:, 0] + 0.05 * X[:, 1]))
    limit = random.exponential(2.0, rows)
    y = np.zeros(rows, TIMES)
    y["event"], y["time"] = time <= limit, np.minimum(time, limit).round(digits)
    return X, y


def newton(X, y, penalties):
    """Minimize the mean Breslow loss plus half of the penalties by loops over risk sets."""
    w = np.zeros(X.shape[1])
    for _ in range(30):
        gradient, curvature = penalties * w, np.diag(penalties)
        for row in np.flatnonzero(y["event"]):
            Z = X[y["time"] >= y["time"][row]]
            p = np.exp(Z @ w - (Z @ w).max())
            mean = p @ Z / p.sum()
            gradient = gradient + (mean - X[row]) / len(X)
            curvature = curvature + (
                (Z * (p / p.sum())[:, None]).T @ Z - np.outer(mean, mean)
            ) / len(X)
        w = w - np.linalg.solve(curvature, gradient)
    return w


X, Y = make_table()
SITES = np.array(["east", "north"])[np.arange(len(X)) % 3 % 2]


def test_coefficients_of_sites_minimize_their_partial_likelihoods():
    assert len(np.unique(Y["time"])) < 0.5 * len(Y)  # ties
    model = SharedPenaltySurvival(penalty=0.1).fit(X, Y)
    np.testing.assert_allclose(model.penalties_, 0.1 * X.var(0))
    np.testing.assert_allclose(model.coef_, newton(X, Y, model.penalties_), rtol=1e-6)
    assert model.intercept_ == 0
    sites = SharedPenaltySurvival(penalty=0.1).fit(X, Y, groups=SITES)
    for site, coef in zip(sites.sites_, sites.coef_):
        rows = site == SITES  # of other numbers, so that one site has padding
        np.testing.assert_allclose(coef, newton(X[rows], Y[rows], sites.penalties_), rtol=1e-6)
        np.testing.assert_allclose(sites.predict(X[rows], SITES[rows]), X[rows] @ coef)
    np.testing.assert_allclose(sites.predict(X), X @ sites.coef_.mean(0))
    count = np.arange(len(X)) % 3  # a row of weight 0 is no row
    weighted = SharedPenaltySurvival(penalty=0.1).fit(X, Y, sample_weight=count)
    repeated = SharedPenaltySurvival(penalty=0.1).fit(X.repeat(count, 0), Y.repeat(count))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)


def validation_loss(X, penalty):
    """Mean loss of validation rows over the splits that the estimator chooses."""
    random, losses = np.random.RandomState(0), []
    for _ in range(2):
        valid = choose_validation_rows(np.zeros(len(X), int), Y["event"].astype(int), 0.25, random)
        w = newton(X[~valid], Y[~valid], penalty)
        scores, y = X[valid] @ w, Y[valid]
        at_risk = [np.log(np.exp(scores[y["time"] >= t]).sum()) for t in y["time"]]
        losses.append(np.mean(y["event"] * (at_risk - scores)))
    return np.mean(losses)


@pytest.mark.wide
def test_learned_penalties_minimize_the_validation_loss(tmp_path):
    noise = np.random.default_rng(1).normal(size=(len(X), 10))  # makes some penalty the best one
    table = np.column_stack([X, noise])
    model = SharedPenaltySurvival(n_splits=2, random_state=0).fit(table, Y)
    np.testing.assert_allclose(model.coef_, newton(table, Y, model.penalties_), rtol=1e-5)
    best = validation_loss(table, model.penalties_)
    assert model.history_["upper_loss"][-1] == pytest.approx(best, rel=1e-5)
    assert best < min(validation_loss(table, factor * model.penalties_) for factor in (0.8, 1.25))
    loaded = SharedPenaltySurvival.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))


def test_score_is_the_share_of_pairs_in_order():
    scores = np.array([3.0, 2.0, 2.0, 1.0, 5.0])
    event, time = np.array([1, 1, 0, 1, 0], bool), np.array([1.0, 2.0, 2.0, 3.0, 0.5])
    # pairs (0, 1), (0, 2), (0, 3) and (1, 3) are in order, (1, 2) is a tie
    assert count_concordant_pairs(event, time, scores) == (4.5, 5.0)
    model = SharedPenaltySurvival(penalty=0.1).fit(X, Y, groups=SITES)
    pairs = np.sum(
        [
            count_concordant_pairs(Y["event"][rows], Y["time"][rows], model.predict(X, SITES)[rows])
            for rows in (SITES == "east", SITES == "north")
        ],
        0,
    )
    assert model.score(X, Y, SITES) == pairs[0] / pairs[1] > 0.6
    assert cross_val_score(SharedPenaltySurvival(penalty=0.1), X, Y, cv=KFold(3)).min() > 0.6


@pytest.mark.parametrize(
    "change, message",
    [
        ({"y": Y["time"]}, "give a structured array"),
        ({"y": Y.astype([("event", float), ("time", float)])}, "give a structured array"),
        ({"y": np.array(list(zip(Y["event"], -Y["time"])), TIMES)}, "times of 0 and above"),
        ({"y": np.array(list(zip(Y["event"], Y["time"] * np.nan)), TIMES)}, "NaN"),
        ({"groups": np.where(np.cumsum(Y["event"]) < 2, "a", "b")}, r"'a' has 1 event\(s\)"),
        ({"y": Y[1:]}, "inconsistent"),
    ],
)
def test_refusals_name_cause_and_remedy(change, message):
    with pytest.raises(ValueError, match=message):
        SharedPenaltySurvival(penalty=0.1).fit(**{"X": X, "y": Y} | change)


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore:Starting with pandas")  # raised inside lifelines
def test_lifelines_has_the_same_coefficients_and_concordance():
    """lifelines has Efron's ties, which without ties are Breslow's.

    It adds half of `penalizer` times the squares to the mean loss per row, in units of deviations
    with n - 1, so that its penalty is larger than ours by n / (n - 1).
    """
    lifelines = pytest.importorskip("lifelines", reason="lifelines is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y = make_table(digits=12)
    model = SharedPenaltySurvival(penalty=0.1).fit(X, y)
    frame = pandas.DataFrame(X).add_prefix("x").assign(event=y["event"], time=y["time"])
    other = lifelines.CoxPHFitter(penalizer=0.1 * (len(X) - 1) / len(X))
    other.fit(frame, "time", "event", fit_options={"precision": 1e-12})
    np.testing.assert_allclose(model.coef_, other.params_, rtol=1e-4)
    assert model.score(X, y) == pytest.approx(other.concordance_index_)
