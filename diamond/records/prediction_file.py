"""Table of the predictions for new rows."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.preparation import Preparation
from ..data.table_columns import as_texts
from ..data.table_rows import DataTable


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
