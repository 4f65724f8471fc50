"""Penalties that sites share: the models are scikit-learn's at these penalties, in float64."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import mean_pinball_loss

from diamond.estimators import SharedPenaltyClassifier, SharedPenaltyRegressor

DIABETES = load_diabetes(return_X_y=True)
CANCER = load_breast_cancer(return_X_y=True)
WINE = load_wine(return_X_y=True)
COUNTS = np.random.default_rng(0).poisson(np.exp(1 + 20 * DIABETES[0][:, 2]))
PENALTIES = [{"penalty": 0.3}, {}, {"penalties": "feature"}]


def in_units_of_roots(model, X):
    """Columns in whose units all penalties are 1."""
    return X / np.sqrt(model.penalties_)


@pytest.mark.wide(keep=["{'penalty': 0.3}", "{}"])
@pytest.mark.parametrize("options", PENALTIES, ids=str)
def test_squared_loss_is_ridge(options):
    X, y = DIABETES
    model = SharedPenaltyRegressor(random_state=0, **options).fit(X, y)
    ridge = Ridge(alpha=len(y)).fit(in_units_of_roots(model, X), y)
    coef = ridge.coef_ / np.sqrt(model.penalties_)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-5, atol=1e-5 * np.abs(coef).max())
    assert model.intercept_ == pytest.approx(ridge.intercept_, rel=1e-5)


@pytest.mark.wide(keep=["{'penalty': 0.3}"])
@pytest.mark.parametrize("options", PENALTIES[:2], ids=str)
def test_poisson_loss_is_poisson_regression(options):
    X, _ = DIABETES
    model = SharedPenaltyRegressor("poisson", random_state=0, **options).fit(X, COUNTS)
    poisson = PoissonRegressor(alpha=1.0, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    poisson.fit(in_units_of_roots(model, X), COUNTS)
    coef = poisson.coef_ / np.sqrt(model.penalties_)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-5, atol=1e-5 * np.abs(coef).max())
    assert model.intercept_ == pytest.approx(poisson.intercept_, rel=1e-5)
    means = poisson.predict(in_units_of_roots(model, X))
    np.testing.assert_allclose(model.predict(X), means, rtol=1e-5)


@pytest.mark.wide(
    keep=["two classes-{'penalty': 0.3}", "three classes-{'penalty': 0.3}", "two classes-{}"]
)
@pytest.mark.parametrize("options", PENALTIES[:2], ids=str)
@pytest.mark.parametrize("table", [CANCER, WINE], ids=["two classes", "three classes"])
def test_classifier_is_logistic_regression(table, options):
    X, y = table
    model = SharedPenaltyClassifier(random_state=0, **options).fit(X, y)
    Z = in_units_of_roots(model, X)
    logistic = LogisticRegression(C=1 / len(y), tol=1e-10, max_iter=10_000, solver="newton-cg")
    middle = Z.mean(0)
    logistic.fit(Z - middle, y)
    coef = logistic.coef_ / np.sqrt(model.penalties_)
    scale = X.std(0)
    error = np.abs(model.coef_ - coef) * scale
    assert error.max() < 1e-5 * np.abs(coef * scale).max()
    intercept = logistic.intercept_ - logistic.coef_ @ middle
    np.testing.assert_allclose(model.intercept_, intercept, rtol=1e-5)
    shares = logistic.predict_proba(Z - middle)
    np.testing.assert_allclose(model.predict_proba(X), shares, atol=1e-6)


def test_the_model_of_a_site_is_scikit_learns_on_its_rows():
    X, y = DIABETES
    groups = np.where(X[:, 1] > 0, "north", "south")
    model = SharedPenaltyRegressor(random_state=0).fit(X, y, groups=groups)
    assert model.sites_.tolist() == ["north", "south"] and model.coef_.shape == (2, X.shape[1])
    for site, coef, intercept in zip(model.sites_, model.coef_, model.intercept_):
        rows = groups == site
        Z = in_units_of_roots(model, X[rows])
        ridge = Ridge(alpha=rows.sum()).fit(Z, y[rows])
        expected = ridge.coef_ / np.sqrt(model.penalties_)
        np.testing.assert_allclose(coef, expected, rtol=1e-5, atol=1e-7)
        assert intercept == pytest.approx(ridge.intercept_, rel=1e-5)
        np.testing.assert_allclose(model.predict(X[rows], groups[rows]), ridge.predict(Z))
    mean = X @ model.coef_.mean(0) + model.intercept_.mean()
    np.testing.assert_allclose(model.predict(X), mean)
    np.testing.assert_allclose(model.predict(X[:2], ["west", None]), mean[:2])


@pytest.mark.wide
def test_learned_penalties_shrink_what_is_noise():
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 4)) * [1.0, 100.0, 1.0, 0.01]
    y = 5 * X[:, 0] + 0.05 * X[:, 1] + random.normal(size=400)
    model = SharedPenaltyRegressor(penalties="feature", random_state=0)
    model.fit(X, y, groups=np.arange(400) % 4)
    signal, noise = np.split(model.penalties_ / X.var(0), 2)
    assert signal.max() < 0.1 * noise.min()
    assert model.history_["upper_loss"][-1] < model.history_["upper_loss"][0]
    assert model.n_iter_ > 0


@pytest.mark.wide
def test_labels_group_the_penalties():
    X, y = DIABETES
    labels = ["a", "b"] * 5
    model = SharedPenaltyRegressor(penalties=labels, random_state=0).fit(X, y)
    standardized = model.penalties_ / X.var(0)
    np.testing.assert_allclose(standardized, np.tile(standardized[:2], 5))
    assert standardized[0] != pytest.approx(standardized[1])
    named = {number: labels[number] for number in range(9)}  # the last has a penalty of its own
    mapped = SharedPenaltyRegressor(penalties=named, random_state=0).fit(X, y).penalties_ / X.var(0)
    assert len(np.unique(mapped.round(12))) == 3


@pytest.mark.wide
def test_penalties_do_not_depend_on_units():
    X, y = DIABETES
    model = SharedPenaltyRegressor(random_state=0).fit(X, y)
    other = clone(model).fit(1000 * X + 5, 3 * y - 7)
    np.testing.assert_allclose(other.penalties_, 1e6 * model.penalties_, rtol=0.01)
    np.testing.assert_allclose(other.coef_, 3e-3 * model.coef_, rtol=0.01, atol=1e-6)


@pytest.mark.wide
def test_quantiles_have_their_share_of_rows_below():
    X, y = DIABETES
    losses = []
    for level in (0.2, 0.8):
        model = SharedPenaltyRegressor("quantile", quantile=level, penalty=1e-3).fit(X, y)
        assert np.mean(y < model.predict(X)) == pytest.approx(level, abs=0.03)
        losses.append(mean_pinball_loss(y, model.predict(X), alpha=level))
    median = SharedPenaltyRegressor("quantile", random_state=0).fit(X, y)
    assert np.mean(y < median.predict(X)) == pytest.approx(0.5, abs=0.05)


@pytest.mark.wide
def test_an_elastic_net_has_two_penalties():
    X, y = DIABETES
    model = SharedPenaltyRegressor(elastic_net=True, random_state=0).fit(X, y)
    assert model.l1_penalties_.shape == model.penalties_.shape == (10,)
    given = clone(model).set_params(penalty=0.5).fit(X, y)
    w = given.coef_ * X.std(0) / y.std()
    gradient = (X - X.mean(0)).T @ (given.predict(X) - y) / len(y) / X.std(0) / y.std()
    sizes = w / np.sqrt(w**2 + given.smoothing**2)
    np.testing.assert_allclose(gradient + 0.5 * w + 0.5 * sizes, 0, atol=1e-7)


def test_a_class_that_a_site_lacks_has_probability_0_there():
    X, y = WINE
    groups = np.arange(len(y)) % 2
    rows = ~((groups == 1) & (y == 2))
    model = SharedPenaltyClassifier(penalty=0.1).fit(X[rows], y[rows], groups=groups[rows])
    assert (model.predict_proba(X, groups)[groups == 1][:, 2] == 0).all()
    assert (model.predict_proba(X, groups)[groups == 0][:, 2] > 0).all()
    assert model.score(X, y) > 0.9  # the mean of the models knows all classes
    alone = SharedPenaltyClassifier(penalty=0.1).fit(
        X[rows & (groups == 1)], y[rows & (groups == 1)]
    )
    assert alone.classes_.tolist() == [0, 1]


def test_refit_uses_all_rows():
    X, y = DIABETES
    fits = [
        SharedPenaltyRegressor(refit=refit, random_state=0).fit(X, y) for refit in (True, False)
    ]
    np.testing.assert_array_equal(fits[0].penalties_, fits[1].penalties_)
    assert np.abs(fits[0].coef_ - fits[1].coef_).max() > 0


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_weights_of_rows_are_numbers_of_rows_of_a_site(loss):
    X, _ = DIABETES
    groups, count = np.arange(len(X)) % 2, np.arange(len(X)) // 2 % 3
    model = SharedPenaltyRegressor(loss, penalty=0.3)
    weighted = clone(model).fit(X, COUNTS, groups, sample_weight=count)
    repeated = model.fit(X.repeat(count, 0), COUNTS.repeat(count), groups.repeat(count))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-6)
    np.testing.assert_allclose(weighted.penalties_, repeated.penalties_, rtol=1e-6)
    halves = clone(model).fit(X, COUNTS, groups, sample_weight=0.5 * count)
    np.testing.assert_allclose(halves.coef_, weighted.coef_, rtol=1e-6)


X, Y = np.arange(24.0).reshape(12, 2), np.arange(12) % 2


@pytest.mark.parametrize(
    "make, arguments, message",
    [
        (lambda: SharedPenaltyRegressor(penalties="group"), {}, "give 'feature', 'shared'"),
        (lambda: SharedPenaltyRegressor(penalties=[0]), {}, "1 labels for 2 features"),
        (lambda: SharedPenaltyRegressor(penalties={"age": 0}), {}, "'age', which is no feature"),
        (lambda: SharedPenaltyRegressor(penalty=0), {}, "give a number above 0"),
        (lambda: SharedPenaltyRegressor("cubic"), {}, "there are 'squared'"),
        (lambda: SharedPenaltyRegressor("quantile", quantile=2), {}, "between 0 and 1"),
        (lambda: SharedPenaltyRegressor("poisson"), {"y": -Y}, "needs counts"),
        (lambda: SharedPenaltyRegressor(validation_fraction=1.5), {}, "validation_fraction"),
        (lambda: SharedPenaltyRegressor(smoothing=0), {}, "smoothing"),
        (SharedPenaltyRegressor, {"groups": [0] * 11 + [1]}, r"site 1 has 1 row\(s\)"),
        (SharedPenaltyRegressor, {"groups": [[0]] * 12}, "give one dimension"),
        (SharedPenaltyRegressor, {"groups": [0] * 11 + [None]}, "no site in row 11"),
        (SharedPenaltyRegressor, {"groups": [0] * 13}, "inconsistent"),
        (SharedPenaltyRegressor, {"sample_weight": 0.0 * Y}, "weight above 0|non-zero"),
        (SharedPenaltyRegressor, {"sample_weight": -1.0 * Y}, "(?i)negative"),
        (SharedPenaltyClassifier, {"groups": Y}, "site 0 has rows of one class only"),
        (SharedPenaltyClassifier, {"y": 0 * Y}, "y has one class"),
    ],
)
def test_refusals_name_cause_and_remedy(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make().fit(**{"X": X, "y": Y} | arguments)
