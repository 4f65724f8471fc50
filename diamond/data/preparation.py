"""The preparation of a table: what turns its rows into the rows of a problem."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..core.parsing import refuse_unreadable
from ..core.suggestions import did_you_mean
from .csv_files import read_csv
from .dataset import DataError, to_float32
from .missing_values import CellTreatment, fill
from .parquet_files import read_parquet
from .standardize import FeatureScale
from .table_columns import Column, as_cells, feature_names
from .table_rows import DataTable, read_features

FILE = "preparation.json"  # its name in a run folder
INTERCEPT = "intercept"
NO_FILL = "give a value, since the run has none to fill by"
Finite = Annotated[float, Field(allow_inf_nan=False)]


class DataFrame(Protocol):
    """Table of pandas or polars."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: Any, /) -> Any: ...


# A file, columns by name, or an array with the columns in order.
TableRows = str | Path | Mapping[str, Any] | DataFrame | NDArray[Any]


class Preparation(BaseModel):
    """Preparation of rows: their columns, the filling of missing cells, the scale.

    Attributes:
        format: Version of the file.
        label: Column of the labels or targets.
        classes: Classes in the order of their numbers; empty for targets.
        columns: Columns of the features, in order.
        fills: For each agent, the values that missing features are filled by, None where there is
            none; empty if missing cells are refused.
        mean: Mean of every feature.
        deviation: Deviation of every feature, by which the difference from the mean is divided.
        model: Kind of the problem, and options that its predictions depend on.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal[1] = 1
    label: str
    classes: tuple[str, ...]
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    fills: tuple[tuple[Finite | None, ...], ...]
    mean: tuple[Finite, ...]
    deviation: tuple[Annotated[Finite, Field(gt=0)], ...]
    model: dict[str, str | bool | list[int | str] | dict[str, str | int]] = {}

    @model_validator(mode="after")
    def _check_sizes(self) -> "Preparation":
        width = len(self.features)
        if any(len(values) != width for values in (self.mean, self.deviation, *self.fills)):
            raise ValueError(f"means, deviations or fills are not those of {width} features")
        if len({column.name for column in self.columns}) < len(self.columns):
            raise ValueError("a column is there twice")
        for column in self.columns:
            widths = {"levels": len({*column.levels}) == len(column.levels) > 0}
            if not widths.get(column.kind, not column.levels) or column.width < 1:
                raise ValueError(f"column {column.name!r} has levels or a width that do not fit")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """Return the names of the features."""
        return feature_names(self.columns)

    def scaled(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """Return filled features, scaled."""
        scale = FeatureScale(np.array(self.mean), np.array(self.deviation))
        is_identity = not np.any(scale.mean) and np.all(scale.deviation == 1)
        return features if is_identity else scale(features)

    def describe_unscaled_dates(self) -> list[str]:
        """Return a remark about dates without a scale, whose lower level is ill-conditioned."""
        kinds = [column.kind for column in self.columns for _ in column.features]
        dates = [
            name
            for name, kind, deviation in zip(self.features, kinds, self.deviation)
            if kind == "date" and deviation == 1
        ]
        remedy = 'scale = "standard", or mean and deviation, as in scale = {day = [19800.0, 90.0]}'
        return [f"{' and '.join(dates)}: days since 1970, not scaled; give {remedy}"] * bool(dates)

    def select_agents(self, agents: Sequence[int]) -> "Preparation":
        """Return the preparation of some of the agents."""
        fills = tuple(self.fills[agent] for agent in agents) if self.fills else ()
        return self.model_copy(update={"fills": fills})

    def prepare(self, rows: TableRows, agent: int = 0) -> NDArray[np.float32]:
        """Return the features of the rows of a table as `agent` would prepare them.

        Args:
            rows: Path of a table, its columns by name (also a DataFrame), or an array with the
                columns in order.
            agent: Number of the agent.

        Raises:
            DataError: The table differs from those of the run; the message names the column.
        """
        table = self.open_table(rows)
        values = self.fills[agent] if self.fills else ()
        treatment = CellTreatment(keeps=bool(values))
        features = read_features(table, self.columns, treatment, NO_FILL)
        single = to_float32(features, table.path, missing=bool(values))
        if values:
            known = np.array([np.nan if value is None else value for value in values])
            single = fill(single, known)
            if np.isnan(single).any():
                row, k = np.argwhere(np.isnan(single))[0]
                raise DataError(
                    f"{table.path}: row {table.numbers[row]}: {self.features[k]!r} is "
                    f"missing; {NO_FILL}"
                )
        return self.scaled(single)

    def open_table(self, rows: TableRows) -> DataTable:
        """Return the rows as a table that has all columns."""
        names = [column.name for column in self.columns]
        if isinstance(rows, str | Path):
            path = Path(rows)
            table = read_parquet(path) if path.suffix == ".parquet" else read_csv(path, names[0])
        else:
            if isinstance(rows, np.ndarray):
                if rows.ndim != 2 or rows.shape[1] != len(names):
                    raise DataError(
                        f"rows of shape {rows.shape}; give {len(names)} columns: {', '.join(names)}"
                    )
                rows = dict(zip(names, rows.T))
            try:
                header = rows if isinstance(rows, Mapping) else rows.columns
                cells = {str(name): as_cells(rows[name]) for name in header}
            except (AttributeError, TypeError) as cause:
                raise DataError(
                    f"rows of type {type(rows).__name__} ({cause}); give the path of a table, its "
                    f"columns by name, or a DataFrame"
                ) from None
            lengths = {len(column) for column in cells.values()}
            if len(lengths) != 1 or lengths == {0}:
                raise DataError("rows without columns, or of unequal lengths; give one value a row")
            path = Path("rows")
            table = DataTable(path, list(cells), range(1, lengths.pop() + 1), cells.__getitem__)
        for name in names:
            if name not in table.header:
                suggestion = did_you_mean(name, table.header)
                raise DataError(f"{path}: no column {name!r}, which the run needs; {suggestion}")
        return table

    def in_table_units(
        self, weights: NDArray[Any], intercept: NDArray[Any] | float
    ) -> dict[str, NDArray[np.float64]]:
        """Return the coefficients of linear scores per unit of each column, by feature.

        With a = (t - mean) / deviation, a'w + b = t'(w / deviation) + b - mean'(w / deviation).
        """
        slopes = np.asarray(weights, float)
        column = (-1, *[1] * (slopes.ndim - 1))
        slopes = slopes / np.reshape(self.deviation, column)
        constant = np.asarray(intercept, float) - np.sum(np.reshape(self.mean, column) * slopes, 0)
        return dict(zip(self.features, slopes)) | {INTERCEPT: np.asarray(constant)}

    def to_json(self) -> str:
        """Format the preparation as a file."""
        return self.model_dump_json(indent=1)


def make_preparation(
    columns: Sequence[Column],
    label: str,
    classes: Sequence[str],
    *,
    scale: FeatureScale | None,
    fills: Sequence[NDArray[np.float64]],
) -> Preparation:
    """Make the preparation of a table; without a scale, features keep their units."""
    width = len(feature_names(columns))
    mean, deviation = (0.0,) * width, (1.0,) * width
    if scale is not None:
        mean, deviation = tuple(scale.mean.tolist()), tuple(scale.deviation.tolist())
    return Preparation(
        label=label,
        classes=tuple(classes),
        columns=tuple(columns),
        fills=tuple(tuple(None if np.isnan(v) else float(v) for v in values) for values in fills),
        mean=mean,
        deviation=deviation,
    )


def read_preparation(path: Path) -> Preparation:
    """Read a preparation from its file.

    Raises:
        DataError: The file is damaged, or not a preparation.
    """
    remedy = "restore the file, or run the experiment again"
    with refuse_unreadable(DataError, f"{path}: not a preparation of rows; {remedy}"):
        try:
            return Preparation.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise DataError(f"{path}: not a preparation of rows ({reason}); {remedy}") from None
