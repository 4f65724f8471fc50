"""The fit of an estimator between real sites: the file of a federation, and the runs of sites."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import tomli_w

from ..core.parsing import refuse_unreadable
from ..data import DataError
from ..records.folder_reader import open_run
from ..records.stored_models import load_models
from .penalties import START
from .site_estimator import SiteEstimator

PROBLEM = "regression"  # of the gallery
FITTING: dict[str, Any] = {"penalties": "feature", "penalty": None, "elastic_net": False}
FITTING |= {"n_splits": 1, "refit": False}  # parameters of the fit that sites can run


class FederatedEstimator(SiteEstimator):
    """Base class of estimators whose fit sites may run as processes, each on its own table."""

    no_federation: ClassVar[str] = ""  # why sites cannot run the fit

    loss: str
    validation_fraction: float
    accuracy: float | Literal["rough", "normal", "exact"]
    random_state: Any
    penalties_: np.ndarray
    n_iter_: int

    def to_federation(
        self,
        path: str | Path,
        *,
        sites: Mapping[str, str],
        features: Mapping[str, tuple[float, float]],
        label: str,
        files: str | Mapping[str, str] = "{agent}.csv",
        test_fraction: float = 0.1,
        rounds: int = 2000,
    ) -> Path:
        """Write the file of a federation whose sites run this fit, each on its own table.

        `diamond net init` founds the federation, `diamond net start` runs a site, and `from_run`
        reads the site's run folder. The penalties have no bounds, and features are float32.

        Args:
            path: the file, which ends in .toml.
            sites: address of each site by name, as "host:port"; two sites or more.
            features: mean and deviation of each column of features, which the sites agree on.
            label: column of the targets.
            files: the table of a site, where {agent} is its name; or {"train": ..., "valid": ...}.
            test_fraction: share of a table's rows that only test the models.
            rounds: largest number of rounds; the run ends earlier by `accuracy`.

        Returns:
            The path of the file.
        """
        self._check_federation()
        if len(sites) < 2 or not features:
            raise ValueError(
                f"{len(sites)} site(s) and {len(features)} feature(s); give two sites or more, and "
                f"the mean and the deviation of each feature"
            )
        scale = {name: [float(mean), float(unit)] for name, (mean, unit) in features.items()}
        for name, (mean, unit) in scale.items():
            if not np.isfinite(mean) or not 0 < unit < np.inf:
                raise ValueError(
                    f"features has mean {mean:g} and deviation {unit:g} of {name!r}; give finite "
                    f"numbers and a deviation above 0, or leave the column out"
                )
        rows: dict[str, Any] = {"dataset": files}
        if not isinstance(files, str):
            rows = dict(files)
        elif not 0 < self.validation_fraction < 1 or not 0 < test_fraction < 1:
            raise ValueError(
                f"validation_fraction = {self.validation_fraction!r} and test_fraction = "
                f"{test_fraction!r}; give shares between 0 and 1"
            )
        else:
            rest = 1 - test_fraction
            valid = rest * self.validation_fraction
            rows["shares"] = [rest - valid, valid, test_fraction]
        start = float(np.log(START * len(features)))  # of mean squares, as `GroupedPenalties` has
        problem = {"kind": PROBLEM, "label": label, "features": [*features], "scale": scale}
        content = {
            "rounds": rounds,
            "seed": 0 if self.random_state is None else int(self.random_state),
            "precision": "float64",
            "network": f"complete:{len(sites)}",
            "algorithm": {"name": "solve", "accuracy": self.accuracy},
            "problem": problem | rows | {"start": start},
            "sites": dict(sites),
        }
        path = Path(path)
        path.write_text(tomli_w.dumps(content), encoding="utf-8")
        return path

    def _check_federation(self) -> None:
        """Refuse a fit that sites cannot run."""
        name = type(self).__name__
        if self.no_federation:
            raise ValueError(f"{name} cannot run between sites: {self.no_federation}")
        if self.loss != "squared":
            raise ValueError(
                f"loss={self.loss!r} cannot run between sites: the problem {PROBLEM!r} has squared "
                f"errors only; give loss='squared', or write a problem in Python"
            )
        if not isinstance(self.random_state, int | np.integer | None):
            raise ValueError("random_state is an object; sites agree on a number, so give an int")
        params = self.get_params(deep=False)
        if wrong := {key: params[key] for key, value in FITTING.items() if params[key] != value}:
            remedy = ", ".join(f"{key}={FITTING[key]!r}" for key in wrong)
            raise ValueError(
                f"{', '.join(wrong)}: sites learn one penalty per feature on one split, and keep "
                f"the models of the training rows; give {name}({remedy})"
            )

    @classmethod
    def from_run(cls, folder: str | Path) -> Self:
        """Return the estimator that a site fitted in a run, or several sites of a simulation.

        Args:
            folder: run folder of the problem `regression` on tables.

        Returns:
            The fitted estimator; `sites_` are the sites whose models the folder has.

        Raises:
            ValueError: the folder holds another run, or is damaged.
        """
        if cls.no_federation:
            raise ValueError(f"{cls.__name__} has no runs of sites: {cls.no_federation}")
        stored = open_run(Path(folder))
        models = load_models(stored)
        preparation = models.predictor.table_preparation
        names, x = preparation.table_features, models.x
        refusal = (
            f"{folder}: no run of the problem {PROBLEM!r} with squared penalties; give the folder "
            f"of a site that ran the file of to_federation"
        )
        if preparation.model.get("kind") != PROBLEM or np.shape(x)[1:] != (len(names),):
            raise DataError(refusal)
        estimator = cls(**FITTING)
        estimator.n_features_in_ = len(names)
        estimator.feature_names_in_ = np.array(names, dtype=object)
        estimator.sites_ = np.array(models.predictor.agents)
        with refuse_unreadable(DataError, refusal):
            sites = range(len(estimator.sites_))
            tables = [models.predictor.coefficients(models.y, site) for site in sites]
            weights = np.array([[*table.values()] for table in tables])  # the intercept is last
            estimator._set_models(weights[:, None, :-1], weights[:, -1:], True)
            factors = np.exp(np.mean(x, 0)) / len(names)
            estimator.penalties_ = factors * np.square(preparation.deviation)
            estimator.history_ = {
                name: np.array([line.get(name, np.nan) for line in stored.lines], float)
                for name in stored.last_evaluation.keys() - {"agents"}
            }
            estimator.n_iter_ = int(stored.last_evaluation["round"])
        return estimator
