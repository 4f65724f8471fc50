"""Problems in other units of x, y and the losses; all units share one compiled program."""

from functools import cache

import numpy as np
import pytest
from fast_compilation import skip_loss_checks

from diamond.problem import Problem


@cache
def losses_with_units(problem):
    """The losses of a problem, with the units read from the rows."""

    def upper(x, y, rows):
        x_unit, y_unit, value = rows["units"][0]
        return value * problem.upper(x / x_unit, y / y_unit, rows["own"])

    def lower(x, y, rows):
        x_unit, y_unit, value = rows["units"][0]
        return value * problem.lower(x / x_unit, y / y_unit, rows["own"])

    return upper, lower


def in_units(problem, x_unit=1.0, y_unit=1.0, value=1.0):
    """The same problem with x, y and the losses multiplied by these numbers."""
    x, y = problem.start(0)
    units = np.array([x_unit, y_unit, value])
    parts = [
        [
            {"own": rows, "units": np.tile(units, (len(rows["point"]), 1))}
            for rows in map(problem.rows[part].__getitem__, range(problem.agents))
        ]
        for part in ("train", "valid")
    ]
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        return Problem(
            *losses_with_units(problem),
            lambda key: (x * x_unit, y * y_unit),
            *parts,
            shuffle=False,
        )
