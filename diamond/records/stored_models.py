"""Models in a run folder, without the problem and its rows."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.parsing import refuse_unreadable
from ..core.pytrees import Tree
from ..data import DataError
from ..data.preparation import FILE as PREPARATION
from ..data.preparation import Preparation, read_preparation
from ..data.table_columns import as_texts
from ..data.table_rows import DataTable
from ..gallery.stored_predictions import stored_prediction
from ..interface.round_interface import state_part
from . import checkpoint_file
from .folder_reader import StoredRun, agent_columns
from .predictor import Predictor
from .stored_arrays import add_agent_axis, rebuild_tree


class StoredModels(NamedTuple):
    """Models of all agents in a run folder, and x and y of its answer."""

    predictor: Predictor
    x: Tree
    y: Tree


def load_models(stored: StoredRun) -> StoredModels:
    """Load the models of a run.

    Raises:
        DataError: The run cannot predict the rows of a table.
    """
    path = stored.path
    predictor = stored_predictor(stored)
    if predictor is None:
        raise DataError(
            f"{path}: no {PREPARATION} of a problem that predicts; run an experiment of such a "
            f"problem on tables, or use diamond.load(folder, problem).predict in Python"
        )
    remedy = f"`diamond resume {path}` continues the run"
    with refuse_unreadable(DataError, f"{path / 'checkpoint'}: no whole checkpoint; {remedy}"):
        newest = checkpoint_file.load_newest(path / "checkpoint")
    arrays = add_agent_axis(stored.manifest, newest.arrays)
    tree = rebuild_tree(arrays)
    best = state_part(tree, "best") if "upper_loss" in stored.last_evaluation else None
    answer = tree.state if best is None else best
    return StoredModels(predictor, answer.x, state_part(answer, "y"))


def stored_predictor(stored: StoredRun) -> Predictor | None:
    """Return the predictor of a run folder, if its problem is of the gallery and on tables."""
    if not (stored.path / PREPARATION).is_file():
        return None
    preparation = read_preparation(stored.path / PREPARATION)
    refusal = f"{stored.path / PREPARATION}: no model that predicts; restore the file"
    with refuse_unreadable(DataError, refusal):
        features, classes = len(preparation.features), len(preparation.classes)
        predict = stored_prediction(preparation.model, features, classes)
        agents = agent_columns(stored.manifest, stored.manifest["network"]["agents"])
    return predict and Predictor(predict, preparation, tuple(agents))


def write_predictions(
    path: Path, table: DataTable, preparation: Preparation, values: NDArray[Any]
) -> None:
    """Write one line per row: columns that are no features, the prediction, values of classes."""
    features = {column.name for column in preparation.columns}
    others = [name for name in table.header if name not in features]
    classes = list(preparation.classes)
    numbers = [[f"{value:.7g}" for value in part] for part in np.atleast_2d(values.T).tolist()]
    chosen = [[classes[k] for k in values.argmax(1)]] if classes else []
    columns = [*(as_texts(table.column(name)) for name in others), *chosen, *numbers]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*others, "prediction", *classes])
        writer.writerows(zip(*columns))
