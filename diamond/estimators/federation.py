"""The fit of an estimator between real sites: the file of a federation, and the runs of sites."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import tomli_w

from ..core.parsing import refuse_unreadable
from ..core.pytrees import Tree
from ..data import DataError
from ..data.preparation import Preparation
from ..gallery import softmax_regression
from ..gallery.feature_penalties import (
    BoundedPenalties,
    GroupedPenalties,
    PenalizedLoss,
    group_features,
)
from ..records.folder_reader import open_run
from ..records.stored_models import load_models
from .site_estimator import SiteEstimator

FITTING: dict[str, Any] = {"penalty": None, "n_splits": 1, "refit": False}  # what sites can run


class FederatedEstimator(SiteEstimator):
    """Base class of estimators whose fit sites may run as processes, each on its own table."""

    no_federation: ClassVar[str] = ""  # why sites cannot run the fit
    federated_problem: ClassVar[str] = "regression"  # of the gallery

    penalties: Any
    elastic_net: bool
    smoothing: float
    validation_fraction: float
    accuracy: float | Literal["rough", "normal", "exact"]
    random_state: Any
    penalties_: np.ndarray
    l1_penalties_: np.ndarray
    classes_: np.ndarray
    n_iter_: int

    def to_federation(
        self,
        path: str | Path,
        *,
        sites: Mapping[str, str],
        features: Mapping[str, tuple[float, float]],
        label: str,
        labels: Sequence[Any] | None = None,
        files: str | Mapping[str, str] = "{agent}.csv",
        test_fraction: float = 0.1,
        rounds: int = 2000,
    ) -> Path:
        """Write the file of a federation whose sites run this fit, each on its own table.

        `diamond net init` founds the federation, `diamond net start` runs a site, and `from_run`
        reads the site's run folder. Features are float32.

        Args:
            path: the file, which ends in .toml.
            sites: address of each site by name, as "host:port"; two sites or more.
            features: mean and deviation of each column of features, which the sites agree on.
            label: column of the targets.
            labels: all classes of a classifier, in their order.
            files: the table of a site, where {agent} is its name; or {"train": ..., "valid": ...}.
            test_fraction: share of a table's rows that only test the models.
            rounds: largest number of rounds; the run ends earlier by `accuracy`.

        Returns:
            The path of the file.
        """
        self._check_federation()
        if (labels is None) == (self.federated_problem == "hyperparameter"):
            raise ValueError(
                f"labels = {labels!r}; give all classes to a classifier, as in ['no', 'yes'], and "
                f"leave labels out otherwise"
            )
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
        kind = self.federated_problem
        problem: dict[str, Any] = {
            "kind": kind,
            "label": label,
            "features": [*features],
            "scale": scale,
        }
        problem |= {"labels": [str(name) for name in labels]} if labels is not None else {}
        is_regression = kind == "regression"
        problem |= {"loss": getattr(self, "loss", "")} if is_regression else {"intercept": True}
        problem |= {
            "penalties": self.penalties,
            "penalty": "elastic_net" if self.elastic_net else "l2",
            "smoothing": float(self.smoothing),
            "bounded": True,
        }
        content = {
            "rounds": rounds,
            "seed": 0 if self.random_state is None else int(self.random_state),
            "precision": "float64",
            "network": f"complete:{len(sites)}",
            "algorithm": {"name": "solve", "accuracy": self.accuracy},
            "problem": problem | rows,
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
        if getattr(self, "loss", "") == "quantile":
            raise ValueError(
                "loss='quantile' cannot run between sites: its kink is rounded in units of the "
                "deviation of all targets, which no site knows; write a problem in Python"
            )
        if not isinstance(self.random_state, int | np.integer | None):
            raise ValueError("random_state is an object; sites agree on a number, so give an int")
        params = self.get_params(deep=False)
        if wrong := {key: params[key] for key, value in FITTING.items() if params[key] != value}:
            remedy = ", ".join(f"{key}={FITTING[key]!r}" for key in wrong)
            raise ValueError(
                f"{', '.join(wrong)}: sites learn penalties on one split, and keep the models of "
                f"the training rows; give {name}({remedy})"
            )

    @classmethod
    def from_run(cls, folder: str | Path) -> Self:
        """Return the estimator that a site fitted in a run, or several sites of a simulation.

        Args:
            folder: run folder of `regression` or `hyperparameter` on tables.

        Returns:
            The fitted estimator; `sites_` are the sites whose models the folder has.

        Raises:
            ValueError: the folder holds another run, or is damaged.
        """
        kind = cls.federated_problem
        if cls.no_federation:
            raise ValueError(f"{cls.__name__} has no runs of sites: {cls.no_federation}")
        stored = open_run(Path(folder))
        models = load_models(stored)
        preparation = models.predictor.table_preparation
        model, names = preparation.model, preparation.features
        refusal = (
            f"{folder}: no run of the problem {kind!r}; give {cls.__name__}.from_run the folder of "
            f"a site that ran the file of to_federation"
        )
        if model.get("kind") != kind or not (kind == "regression" or model.get("intercept")):
            raise DataError(refusal)
        with refuse_unreadable(DataError, refusal):
            parameters = FITTING | {"penalties": model.get("penalties", "feature")}
            parameters["elastic_net"] = model.get("penalty") == "elastic_net"
            parameters |= {"loss": model.get("loss", "squared")} if kind == "regression" else {}
            estimator = cls(**parameters)
            estimator.n_features_in_ = len(names)
            estimator.feature_names_in_ = np.array(names, dtype=object)
            estimator.sites_ = np.array(models.predictor.agents)
            estimator.history_ = {
                name: np.array([line.get(name, np.nan) for line in stored.lines], float)
                for name in stored.last_evaluation.keys() - {"agents"}
            }
            estimator.n_iter_ = int(stored.last_evaluation["round"])
            estimator._set_trained(models.y, preparation)
            size = models.y["w"][0].size
            is_bounded = bool(model.get("bounded"))
            estimator._set_penalties(np.mean(models.x, 0), size, preparation.deviation, is_bounded)
        return estimator

    def _set_trained(self, y: Tree, preparation: Preparation) -> None:
        """Set the models of the sites in the units of the table, from their weights y."""
        weights, mean, unit = np.asarray(y["w"], float), preparation.mean, preparation.deviation
        count = len(weights)
        coef = weights.reshape(count, self.n_features_in_, -1).swapaxes(1, 2) / np.asarray(unit)
        intercept = np.asarray(y["b"], float).reshape(count, -1) - coef @ np.asarray(mean)
        if len(preparation.classes) == 2:
            coef, intercept = np.diff(coef, axis=1), np.diff(intercept, axis=1)
        if preparation.classes:
            self.classes_ = np.array(preparation.classes)
        self._set_models(coef, intercept, True)

    def _set_penalties(self, x: Any, size: int, deviation: Any, is_bounded: bool) -> None:
        """Set the penalties in the units of the table, from x of a problem of the gallery."""
        smoothing = self.smoothing if self.elastic_net else None
        # Of this loss only the penalties are read.
        loss = PenalizedLoss(softmax_regression.upper, itemgetter("w"), smoothing)
        count = self.n_features_in_
        groups = group_features(self.penalties, [*self.feature_names_in_], count).groups
        grouped = GroupedPenalties(loss, groups)
        is_squared = getattr(self, "loss", "") == "squared"  # its mean squares are not halved
        is_pair = size == 2 * count  # weights of two classes, each half of their difference
        if is_bounded:
            x = BoundedPenalties(grouped, size * (1 + is_squared + is_pair)).log_penalties(x)
        factors = np.exp(np.asarray(grouped.by_feature(x), float)) / size
        unit = 1.0 if is_squared or is_pair else 2.0
        self.penalties_ = unit * factors[:count] * np.square(deviation)
        if self.elastic_net:
            unit = 0.5 if is_squared else 1.0
            self.l1_penalties_ = unit * factors[count:] * np.asarray(deviation)
