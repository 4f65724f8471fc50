"""Fits between processes: the models of sites are those of the estimator on all rows."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from tls_sites import ports

from diamond.config import federation_file
from diamond.estimators import (
    SharedPenaltyClassifier,
    SharedPenaltyRegressor,
    SharedPenaltySurvival,
)
from diamond.estimators.site_rows import choose_validation_rows

FITTING = {"penalties": "feature", "n_splits": 1, "refit": False}
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
        (SharedPenaltyRegressor(n_splits=1, refit=False), r"give .*\(penalties='feature'\)"),
        (SharedPenaltyRegressor("poisson", **FITTING), "squared errors only"),
        (SharedPenaltyRegressor(validation_fraction=2, **FITTING), "between 0 and 1"),
        (SharedPenaltyRegressor(random_state=np.random.RandomState(0), **FITTING), "give an int"),
        (SharedPenaltyRegressor(**FITTING), "deviation 0 of 'age'"),
        (SharedPenaltyClassifier(), "penalizes intercepts"),
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


@pytest.mark.wide
def test_models_of_processes_are_those_of_the_estimator(tmp_path):
    """Tolerances are those of float32 features, and of penalties that change the loss little."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y = load_diabetes(return_X_y=True)
    X, site = X[:, :4] * 100 + 7, np.arange(len(y)) % 2  # four features, all of them of use
    model = SharedPenaltyRegressor(accuracy="exact", random_state=0, **FITTING)
    model.fit(X, y, groups=np.array(SITES)[site])
    is_valid = choose_validation_rows(site, 0 * site, 0.25, np.random.RandomState(0))
    names = ["age", "sex", "bmi", "pressure"]
    for part, chosen in {"train": ~is_valid, "valid": is_valid}.items():
        for number, name in enumerate(SITES):
            rows = chosen & (site == number)
            table = np.column_stack([X, y])[rows].tolist()
            lines = [",".join([*names, "days"]), *(",".join(map(repr, row)) for row in table)]
            (tmp_path / f"{name}-{part}.csv").write_text("\n".join(lines) + "\n")
    model.to_federation(
        tmp_path / "trial.toml",
        sites={name: f"127.0.0.1:{port}" for name, port in zip(SITES, ports(2))},
        features=dict(zip(names, zip(X.mean(0), X.std(0)))),
        label="days",
        files={part: f"{{agent}}-{part}.csv" for part in ("train", "valid")},
    )
    run_sites(tmp_path)
    for number, name in enumerate(SITES):
        (folder,) = (tmp_path / "runs").glob(f"*/{name}")
        loaded = SharedPenaltyRegressor.from_run(folder)
        assert loaded.sites_.tolist() == [name] and loaded.feature_names_in_.tolist() == names
        np.testing.assert_allclose(loaded.coef_[0], model.coef_[number], rtol=1e-3)
        assert loaded.intercept_[0] == pytest.approx(model.intercept_[number], rel=1e-3)
        is_bounded = model.penalties_ < 1e-4 * np.max(model.penalties_)
        assert (
            is_bounded.sum() == 1
        )  # the estimator's smallest penalty has a bound, the sites' none
        difference = loaded.penalties_ - model.penalties_
        np.testing.assert_array_less(np.abs(difference), 0.01 * model.penalties_ + 1e-3)
        table = pandas.DataFrame(X, columns=names)
        mine = model.predict(X, [name] * len(X))
        np.testing.assert_allclose(loaded.predict(table, [name] * len(X)), mine, rtol=1e-3)
        saved = SharedPenaltyRegressor.load(loaded.save(tmp_path / f"saved-{name}"))
        np.testing.assert_array_equal(saved.predict(table), loaded.predict(table))
    (folder / "preparation.json").unlink()
    with pytest.raises(ValueError, match="of a problem that predicts"):
        SharedPenaltyRegressor.from_run(folder)
