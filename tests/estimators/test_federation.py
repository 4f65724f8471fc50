"""Fits between processes: the models of sites are those of the estimator on all rows."""

import json
import os
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import tomli_w
from commands import command
from sklearn.datasets import load_diabetes
from tls_sites import ports

from diamond.config import federation_file
from diamond.estimators import (
    SharedPenaltyClassifier,
    SharedPenaltyRegressor,
    SharedPenaltySurvival,
)
from diamond.estimators.site_rows import choose_validation_rows

FITTING = {"n_splits": 1, "refit": False}
SITES = ["north", "south"]
PLACES = {"sites": dict(zip(SITES, ["127.0.0.1:7101", "127.0.0.1:7102"]))}
PLACES |= {"features": {"age": (50.0, 15.0)}, "label": "days"}


def test_the_file_is_a_federation(tmp_path):
    model = SharedPenaltyRegressor(random_state=3, accuracy="exact", **FITTING)
    path = model.to_federation(tmp_path / "trial.toml", **PLACES)
    federation = federation_file.load(path)
    assert [*federation.sites] == SITES and federation.seed == 3
    assert federation.algorithm.options["accuracy"] == "exact"
    assert sum(federation.problem["shares"]) == pytest.approx(1)
    parts = {"train": "{agent}-train.csv", "valid": "{agent}-valid.csv"}
    again = federation_file.load(model.to_federation(path, files=parts, **PLACES))
    assert "shares" not in again.problem and again.problem["train"] == parts["train"]


@pytest.mark.parametrize(
    "model, message",
    [
        (SharedPenaltyRegressor(n_splits=2, refit=False), r"give .*\(n_splits=1\)"),
        (SharedPenaltyRegressor("quantile", **FITTING), "deviation of all targets"),
        (SharedPenaltyRegressor(validation_fraction=2, **FITTING), "between 0 and 1"),
        (SharedPenaltyRegressor(random_state=np.random.RandomState(0), **FITTING), "give an int"),
        (SharedPenaltyRegressor(**FITTING), "deviation 0 of 'age'"),
        (SharedPenaltyClassifier(**FITTING), "give all classes"),
        (SharedPenaltySurvival(), "censored times"),
    ],
)
def test_fits_that_sites_cannot_run_are_refused(tmp_path, model, message):
    wrong = {"features": {"age": (50.0, 0.0)}} if "deviation" in message else {}
    with pytest.raises(ValueError, match=message):
        model.to_federation(tmp_path / "trial.toml", **PLACES | wrong)
    assert not (tmp_path / "trial.toml").exists()


def run_sites(folder):
    """Run both sites of folder/trial.toml as processes; return their ends."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(folder / "cache")}
    call = [sys.executable, "-m", "diamond", "net"]
    options = {"cwd": folder, "env": environment, "text": True}
    subprocess.run([*call, "init", "trial.toml"], check=True, capture_output=True, **options)
    starts = [
        subprocess.Popen(
            [*call, "start", f"trial/{site}", "--out", "runs", "--json"],
            stdout=subprocess.PIPE,
            **options,
        )
        for site in SITES
    ]
    return [json.loads(process.communicate(timeout=240)[0]) for process in starts]


def write_tables(folder, X, y):
    """Write the rows of both sites, split as by the estimators; return the site of each row."""
    site = np.arange(len(y)) % 2
    strata = np.unique(y, return_inverse=True)[1] if y.dtype.kind == "U" else 0 * site
    is_valid = choose_validation_rows(site, strata, 0.25, np.random.RandomState(0))
    for part, chosen in {"train": ~is_valid, "valid": is_valid}.items():
        for number, name in enumerate(SITES):
            rows = chosen & (site == number)
            cells = [map(repr, row) for row in X[rows].tolist()]
            lines = [",".join([*row, str(label)]) for row, label in zip(cells, y[rows])]
            text = "\n".join([",".join([*NAMES, "days"]), *lines])
            (folder / f"{name}-{part}.csv").write_text(f"{text}\n")
    return np.array(SITES)[site]


def table_arguments(X):
    return {
        "features": dict(zip(NAMES, zip(X.mean(0), X.std(0)))),
        "label": "days",
        "files": {part: f"{{agent}}-{part}.csv" for part in ("train", "valid")},
    }


def assert_equal_fits(loaded, model, sites, X, folder):
    """Tolerances are those of float32 features, and of penalties that change the loss little."""
    numbers = [[*model.sites_].index(name) for name in sites]
    assert loaded.sites_.tolist() == sites and loaded.feature_names_in_.tolist() == NAMES
    scale = np.abs(model.coef_).max()
    np.testing.assert_allclose(loaded.coef_, model.coef_[numbers], rtol=1e-3, atol=1e-4 * scale)
    np.testing.assert_allclose(loaded.intercept_, model.intercept_[numbers], rtol=1e-3, atol=1e-3)
    for name in ("penalties_", "l1_penalties_"):
        if hasattr(model, name):
            expected = getattr(model, name)
            error = np.abs(getattr(loaded, name) - expected)
            np.testing.assert_array_less(error, 0.01 * expected + 1e-3)
    groups = [sites[0]] * len(X)
    predict = "predict_proba" if hasattr(model, "classes_") else "predict"
    found, expected = (getattr(m, predict)(X, groups) for m in (loaded, model))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    saved = type(model).load(loaded.save(folder / f"saved-{'-'.join(sites)}"))
    np.testing.assert_array_equal(saved.predict(X), loaded.predict(X))


X, TARGETS = load_diabetes(return_X_y=True)
X = X[:, [2, 3, 6, 8]] * 100 + 7  # four features, all of them of use
NAMES = ["bmi", "pressure", "hdl", "sugar"]
CLASSES = np.array(["a", "b", "c"])[np.digitize(TARGETS, [100, 180])]


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("kind", ["squared", "classes"])
def test_models_of_processes_are_those_of_the_estimator(tmp_path, kind):
    options = FITTING | {"accuracy": "exact", "random_state": 0}
    model, y = SharedPenaltyRegressor(penalties="feature", **options), TARGETS
    if kind == "classes":
        model, y = SharedPenaltyClassifier(**options), np.where(CLASSES == "c", "yes", "no")
    model.fit(X, y, groups=write_tables(tmp_path, X, y))
    model.to_federation(
        tmp_path / "trial.toml",
        sites={name: f"127.0.0.1:{port}" for name, port in zip(SITES, ports(2))},
        **table_arguments(X) | ({"labels": ["no", "yes"]} if kind == "classes" else {}),
    )
    run_sites(tmp_path)
    for name in SITES:
        (folder,) = (tmp_path / "runs").glob(f"*/{name}")
        assert_equal_fits(type(model).from_run(folder), model, [name], X, tmp_path)
    (folder / "preparation.json").unlink()
    with pytest.raises(ValueError, match="of a problem that predicts"):
        SharedPenaltyRegressor.from_run(folder)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("kind", ["poisson", "classes"])
def test_fits_of_a_simulation_are_those_of_the_estimator(tmp_path, kind, monkeypatch):
    options = FITTING | {"accuracy": "exact", "random_state": 0}
    model, y = SharedPenaltyRegressor("poisson", **options), np.round(TARGETS / 50)
    if kind == "classes":
        groups = ["body", "body", "blood", "blood"]
        model, y = SharedPenaltyClassifier(penalties=groups, elastic_net=True, **options), CLASSES
    model.fit(X, y, groups=write_tables(tmp_path, X, y))
    labels = {"labels": ["a", "b", "c"]} if kind == "classes" else {}
    path = model.to_federation(
        tmp_path / "trial.toml", sites=PLACES["sites"], **table_arguments(X) | labels
    )
    file = tomllib.loads(path.read_text())
    del file["sites"]  # an experiment has the rows of all sites
    monkeypatch.chdir(tmp_path)
    for part in ("train", "valid"):
        file["problem"][part] = {name: f"{name}-{part}.csv" for name in SITES}
    path.write_text(tomli_w.dumps(file))
    assert "Converged" in command("run", path).output
    loaded = type(model).from_run(tmp_path / "runs" / "trial")
    assert_equal_fits(loaded, model, SITES, X, tmp_path)
