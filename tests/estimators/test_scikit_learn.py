"""What scikit-learn asks of estimators: its own checks, metadata routing, tables, files."""

import numpy as np
import pytest
import sklearn
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from diamond.estimators import (
    CleanedClassifier,
    SharedPenaltyClassifier,
    SharedPenaltyRegressor,
    SharedRepresentationClassifier,
)

LONG = [
    SharedPenaltyRegressor(accuracy="rough"),
    SharedPenaltyClassifier(accuracy="rough"),
    SharedRepresentationClassifier(accuracy="rough"),
    CleanedClassifier(),
    SharedPenaltyRegressor("quantile", penalty=0.01),
]
SHORT = [
    SharedPenaltyRegressor(penalty=0.01),
    SharedPenaltyClassifier(penalty=0.01),
]
DIABETES = load_diabetes(return_X_y=True)
WINE = load_wine(return_X_y=True)


@parametrize_with_checks(SHORT)
def test_checks_of_scikit_learn_with_a_given_penalty(estimator, check):
    check(estimator)


def splits_of_rows(estimator):
    """Checks that repeat rows, which splits of rows then tear apart."""
    if getattr(estimator, "penalty", 0) is not None:
        return {}
    name = "check_sample_weight_equivalence_on_{}_data"
    return {name.format(kind): "repeated rows are split" for kind in ("dense", "sparse")}


@pytest.mark.wide
@parametrize_with_checks(LONG, expected_failed_checks=splits_of_rows)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_sites_travel_through_cross_validation_and_search(routing):
    X, y = DIABETES
    groups = np.arange(len(y)) % 5
    model = SharedPenaltyRegressor(penalty=0.1).set_fit_request(groups=True)
    params = {"groups": groups}
    scores = cross_val_score(model, X, y, cv=GroupKFold(), params=params)
    assert scores.shape == (5,) and scores.min() > 0.2
    search = GridSearchCV(model, {"penalty": [0.01, 100.0]}, cv=GroupKFold(3))
    search.fit(X, y, **params)
    assert search.best_params_ == {"penalty": 0.01}
    assert search.best_estimator_.sites_.tolist() == [0, 1, 2, 3, 4]


def test_models_of_sites_are_scored_unless_refused(routing):
    X, y = DIABETES
    groups = np.arange(len(y)) % 2
    y = np.where(groups, y, -y)
    model, params = SharedPenaltyRegressor(penalty=0.1), {"groups": groups}
    assert cross_val_score(model, X, y, params=params).min() > 0.2
    model.set_score_request(groups=False)  # then the mean of two opposite models predicts
    assert cross_val_score(model, X, y, params=params).max() < 0.1


def test_a_pipeline_prepares_categories():
    X, y = DIABETES
    table = np.column_stack([X.astype(object), np.where(X[:, 2] > 0, "high", "low")])
    prepare = ColumnTransformer(
        [("kind", OneHotEncoder(), [10])], remainder="passthrough", sparse_threshold=1.0
    )
    model = make_pipeline(prepare, SharedPenaltyRegressor(penalty=0.1))
    groups = np.arange(len(y)) % 3
    model.fit(table, y, sharedpenaltyregressor__groups=groups)
    assert model[-1].coef_.shape == (3, 12) and model.score(table, y) > 0.4


class Frame:
    """What polars and pandas have in common: columns, and `__array__`."""

    def __init__(self, data, columns):
        self.data, self.columns, self.shape = data, columns, data.shape

    def __array__(self, dtype=None, copy=None):
        return self.data.astype(dtype or self.data.dtype)

    def __len__(self):
        return len(self.data)


def test_any_table_with_arrays_is_one():
    X, y = DIABETES
    expected = SharedPenaltyRegressor(penalty=0.1).fit(X, y).coef_
    found = SharedPenaltyRegressor(penalty=0.1).fit(Frame(X, [*"abcdefghij"]), y).coef_
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_names_of_columns_are_names_of_features(library):
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    X, y = DIABETES
    frame = frames.DataFrame({name: X[:, i] for i, name in enumerate("abcdefghij")})
    model = SharedPenaltyRegressor(penalties={"a": 0, "b": 0}, random_state=0)
    model.fit(frame, frames.Series(y), groups=frames.Series(np.arange(len(y)) % 2))
    assert model.feature_names_in_.tolist() == [*"abcdefghij"]
    np.testing.assert_allclose(*(model.penalties_ / X.var(0))[:2])


def test_files_hold_all_that_predictions_need(tmp_path):
    X, y = WINE
    labels = np.array(["red", "rose", "white"])[y]
    sites = np.where(np.arange(len(y)) % 2, "north", "south")
    model = SharedPenaltyClassifier(penalty=0.1, penalties=("a",) * 13).fit(X, labels, groups=sites)
    path = model.save(tmp_path / "model")
    loaded = SharedPenaltyClassifier.load(path)
    assert loaded.get_params() == model.get_params() | {"penalties": ["a"] * 13}
    assert {*vars(loaded)} == {*vars(model)}
    np.testing.assert_array_equal(loaded.predict(X, sites), model.predict(X, sites))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    model.feature_names_in_ = np.array([f"x{i}" for i in range(13)], dtype=object)
    named = SharedPenaltyClassifier.load(model.save(tmp_path / "named")).feature_names_in_
    assert named.dtype == object and named.tolist() == model.feature_names_in_.tolist()
    with pytest.raises(FileExistsError, match="choose another folder"):
        model.save(path)


def test_other_bytes_are_refused_in_a_sentence(tmp_path):
    X, y = DIABETES
    path = SharedPenaltyRegressor(penalty=0.1).fit(X, y).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"load it by SharedPenaltyRegressor\.load"):
        SharedPenaltyClassifier.load(path)
    with pytest.raises(ValueError, match="not a whole checkpoint"):
        SharedPenaltyRegressor.load(tmp_path / "absent")
    (arrays,) = path.glob("*.safetensors")
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(content)
    with pytest.raises(ValueError, match="digest"):
        SharedPenaltyRegressor.load(path)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        SharedPenaltyRegressor().save(tmp_path / "unfitted")


def test_a_missing_package_is_named(monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.startswith("diamond.estimators.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    from diamond import estimators

    monkeypatch.delitem(vars(estimators), "CleanedClassifier", raising=False)
    with pytest.raises(ImportError, match=r"diamond-bilevel\[sklearn\]"):
        _ = estimators.CleanedClassifier
