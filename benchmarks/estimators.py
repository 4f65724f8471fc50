"""Held-out scores of four sites that learn penalties together, alone, or from pooled rows.

    python benchmarks/estimators.py [--small]

Breast cancer, diabetes and wine, the tables inside scikit-learn, split into four sites with 10, 20,
30 and 40 % of the rows. With "selection" the sites have other patients or bottles: rows are sorted
by their first principal component plus noise of 1.5 of its deviations. With "calibration" rows are
dealt at random, and each site adds its own offset, drawn with half of the deviation, to every
feature. Half of the rows of a site are for training. "together" is SharedPenaltyRegressor or
SharedPenaltyClassifier (one penalty per feature, or one for all), "alone" RidgeCV or
LogisticRegressionCV at each site, "pooled" one of these on the rows of all sites; features are
standardized by the training rows. Scores are those of all held-out rows by the model of their site:
R^2 for diabetes, else accuracies. Mean and 95 % interval (Student's t) over ten splits; the last
columns are of paired differences to "alone".
"""

import sys
import warnings

import numpy as np
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from diamond.estimators import SharedPenaltyClassifier, SharedPenaltyRegressor

SPLITS = 2 if "--small" in sys.argv else 10
SHARES = [0.1, 0.2, 0.3, 0.4]
TABLES = {"breast cancer": load_breast_cancer, "diabetes": load_diabetes, "wine": load_wine}


def deal(X, y, shift, random):
    """The features, the site of each row, and which rows are for training."""
    Z = (X - X.mean(0)) / X.std(0)
    first = Z @ np.linalg.svd(Z, full_matrices=False)[2][0]
    noise = random.normal(size=len(y))
    order = np.argsort(first / first.std() + 1.5 * noise if shift == "selection" else noise)
    site = np.empty(len(y), int)
    site[order] = np.searchsorted(np.cumsum(SHARES) * len(y), np.arange(len(y)), side="right")
    site = np.minimum(site, len(SHARES) - 1)
    if shift == "calibration":
        X = X + 0.5 * X.std(0) * random.normal(size=(len(SHARES), X.shape[1]))[site]
    is_train = np.zeros(len(y), bool)
    for number in range(len(SHARES)):
        rows = random.permutation(np.flatnonzero(site == number))
        is_train[rows[: len(rows) // 2]] = True
    return X, site, is_train


def tuned_alone(y, is_classifier):
    """scikit-learn's estimator with its penalty by cross-validation, as far as rows allow it."""
    if not is_classifier:
        return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 29)))
    folds = min(5, np.unique(y, return_counts=True)[1].min())
    if folds < 2:  # a class with one row cannot be in two folds
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return make_pipeline(
        StandardScaler(), LogisticRegressionCV(Cs=10, cv=folds, max_iter=2000, scoring="accuracy")
    )


def scores_of_split(X, y, shift, seed, is_classifier):
    random = np.random.default_rng(seed)
    while True:  # every site needs two classes to train on
        features, site, is_train = deal(X, y, shift, random)
        if not is_classifier or all(len({*y[is_train & (site == i)]}) > 1 for i in range(4)):
            break
    train, test = (features[is_train], y[is_train]), features[~is_train]
    kind = SharedPenaltyClassifier if is_classifier else SharedPenaltyRegressor
    predictions = {}
    for penalties in ("feature", "shared"):
        model = kind(penalties=penalties, random_state=seed).fit(*train, groups=site[is_train])
        predictions[f"together, {penalties}"] = model.predict(test, site[~is_train])
    alone = np.empty(len(test), y.dtype)
    for i in range(len(SHARES)):
        rows = is_train & (site == i)
        model = tuned_alone(y[rows], is_classifier).fit(features[rows], y[rows])
        alone[site[~is_train] == i] = model.predict(features[~is_train & (site == i)])
    predictions["alone"] = alone
    predictions["pooled"] = tuned_alone(train[1], is_classifier).fit(*train).predict(test)
    score = accuracy_score if is_classifier else r2_score
    return {name: score(y[~is_train], predicted) for name, predicted in predictions.items()}


def interval(values):
    """Mean and half of the 95 % interval of the mean."""
    width = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {width:.3f}"


def main():
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", FutureWarning)
    names = ["together, feature", "together, shared", "alone", "pooled"]
    print(f"| table | shift | {' | '.join(names)} | feature - alone | shared - alone |")
    print("| --- | --- |" + " ---: |" * 6)
    for table, load in TABLES.items():
        X, y = load(return_X_y=True)
        for shift in ("selection", "calibration"):
            splits = [scores_of_split(X, y, shift, s, table != "diabetes") for s in range(SPLITS)]
            scores = {name: np.array([split[name] for split in splits]) for name in names}
            cells = [interval(scores[name]) for name in names]
            cells += [interval(scores[name] - scores["alone"]) for name in names[:2]]
            print(f"| {table} | {shift} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
