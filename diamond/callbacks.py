"""Ready-made `on_evaluation` callbacks that log the history to experiment trackers.

Each callback is a context manager around runs; the step is the round. Nothing leaves the machine
unless the user asks for it. The packages are optional, each an extra of the same name.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

Entry = dict[str, float]
OnEvaluation = Callable[[Entry], None]


@contextmanager
def tensorboard(folder: str | Path) -> Iterator[OnEvaluation]:
    """Log scalars to TensorBoard event files.

    Args:
        folder: Folder of the event files.

    Yields:
        The callback for `on_evaluation`.
    """
    writer = _import_extra("tensorboardX", "tensorboard").SummaryWriter(str(folder))

    def log_entry(entry: Entry) -> None:
        for name, value in _metrics_of(entry).items():
            writer.add_scalar(name, value, int(entry["round"]))

    with writer:
        yield log_entry


@contextmanager
def mlflow(
    experiment: str, uri: str = "sqlite:///mlflow.db", name: str | None = None
) -> Iterator[OnEvaluation]:
    """Log metrics to a new MLflow run, marked as failed if the block raises.

    Args:
        experiment: Name of the MLflow experiment.
        uri: Address of the tracking store.
        name: Name of the MLflow run.

    Yields:
        The callback for `on_evaluation`.
    """
    package = _import_extra("mlflow", "mlflow")
    client = package.MlflowClient(tracking_uri=uri)
    existing = client.get_experiment_by_name(experiment)
    experiment_id = existing.experiment_id if existing else client.create_experiment(experiment)
    run = client.create_run(experiment_id, run_name=name).info.run_id

    def log_entry(entry: Entry) -> None:
        when, step = round(1000 * time.time()), int(entry["round"])
        metric = package.entities.Metric
        client.log_batch(
            run, [metric(k, float(v), when, step) for k, v in _metrics_of(entry).items()]
        )

    try:
        yield log_entry
    except BaseException:
        client.set_terminated(run, "FAILED")
        raise
    client.set_terminated(run)


@contextmanager
def wandb(project: str, folder: str | Path = ".", online: bool = False) -> Iterator[OnEvaluation]:
    """Log the history to a new Weights & Biases run.

    Args:
        project: Name of the project.
        folder: Folder in which the run's files are created.
        online: Send the run to the server too.

    Yields:
        The callback for `on_evaluation`.
    """
    mode = "online" if online else "offline"
    run = _import_extra("wandb", "wandb").init(project=project, dir=str(folder), mode=mode)
    with run:
        yield lambda entry: run.log(_metrics_of(entry), step=int(entry["round"]))


def _metrics_of(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if name != "round"}


def _import_extra(package: str, extra: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as cause:
        raise ModuleNotFoundError(
            f"diamond.callbacks.{extra} needs {package}, which is not installed; "
            f"install it by pip install 'diamond-bilevel[{extra}]'"
        ) from cause
