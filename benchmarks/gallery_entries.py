"""The problems of the gallery as `diamond new` has them, made in Python."""

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import diamond
from diamond import data, gallery
from diamond.bench.cases import digit_rows
from diamond.data.standardize import federated_scale
from diamond.templates import template_files as starting_files


class Entry(NamedTuple):
    """A problem on its network, how long a run is, and the metric by which people know it."""

    make: Callable[[], Any]  # a Problem, or what has one
    agents: int
    rounds: int
    batch: int
    metric: str
    solver: int | None = None  # steps of conjugate gradients; None: the chain of eq. (5)

    def network(self) -> diamond.Network:
        return diamond.network.erdos_renyi(self.agents, p=0.5, seed=0)


def fair_weights():
    """Digits of which every agent has some more often than others."""
    a, b = data.digits().train
    parts = data.partition.dirichlet(b, 5, concentration=0.3, seed=0)
    split = data.partition.split(parts, (0.4, 0.4, 0.2), 0)
    rows = [[{"a": a[i], "b": b[i]} for i in part] for part in split]
    return gallery.fair_weights(*rows, classes=10)


def rows_of_tables():
    """Training, validation and test rows of the tables that `diamond new` writes."""
    with tempfile.TemporaryDirectory() as folder:
        datasets = []
        for name, text in starting_files.companion_files("site", "regression").items():
            (Path(folder) / name).write_text(text)
            datasets.append(data.csv(Path(folder) / name, "target", real=True))
    dataset = data.join_files(datasets)
    split = data.partition.split(data.partition.by_column(dataset.sites), (0.4, 0.4, 0.2), 0)
    features, targets = dataset.train
    features = federated_scale([features[i] for i in split[0]])(features)
    return [[{"a": features[i], "b": targets[i]} for i in part] for part in split]


def regression():
    """On the tables that `diamond new` writes."""
    return gallery.regression(*rows_of_tables())


def representation():
    """By the function that `diamond new` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.py"
        path.write_text(starting_files.companion_files("kernels", "representation")["kernels.py"])
        spec = importlib.util.spec_from_file_location("kernels", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module.make()


ENTRIES = {
    "quadratic": Entry(lambda: gallery.quadratic(), 5, 500, 16, "upper_loss"),
    "quadratic in common": Entry(
        lambda: gallery.quadratic(lower_level="common"), 5, 500, 16, "upper_loss"
    ),
    "regression": Entry(regression, 5, 500, 16, "test_loss"),
    "policy_evaluation": Entry(lambda: gallery.policy_evaluation(), 5, 500, 32, "upper_loss"),
    "hyperparameter": Entry(
        lambda: gallery.hyperparameter(*digit_rows(5), classes=10), 5, 500, 16, "accuracy"
    ),
    "support_vectors": Entry(
        lambda: gallery.support_vectors(*digit_rows(5), classes=10), 5, 500, 16, "accuracy"
    ),
    "actor_critic": Entry(lambda: gallery.actor_critic(), 9, 500, 6, "return", 6),
    "meta_learning": Entry(lambda: gallery.meta_learning(*digit_rows(5)), 5, 500, 16, "accuracy"),
    "fair_weights": Entry(fair_weights, 5, 500, 32, "accuracy"),
    "navigation": Entry(lambda: gallery.navigation(), 4, 300, 64, "return", 10),
    "hyper_cleaning": Entry(lambda: gallery.hyper_cleaning(*digit_rows(5)), 5, 500, 32, "f1"),
    "distillation": Entry(lambda: gallery.distillation(*digit_rows(5)), 5, 300, 16, "accuracy"),
    "representation": Entry(representation, 5, 300, 16, "accuracy"),
}
