"""Settings that `diamond tune` tries: the lists of an algorithm, or steps around its own."""

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ..config import schedule_text, sweeps
from ..config.components import read_algorithm
from ..engine.pilot_run import learned_numbers
from ..network import Network
from ..problem import Problem
from . import scaled_schedules

FACTORS = (1 / 4, 1.0, 4.0)
FINE_ALPHA_FACTORS = tuple(
    4 ** (k / 4) for k in range(-4, 5)
)  # factors of alpha without eta: also 27 settings
FACTOR_LEVELS = {"alpha": ("alpha",), "beta": ("beta",), "eta": ("eta", "gamma")}
STEP_NAMES = ("alpha", "beta", "eta", "gamma")
AlgorithmTable = dict[str, Any]


class TableSetting(NamedTuple):
    """Algorithm's table with chosen values, and the options that identify the setting."""

    table: AlgorithmTable
    options: AlgorithmTable


def list_settings(
    table: AlgorithmTable, problem: Problem, network: Network, seed: int, base: Path = Path()
) -> list[TableSetting]:
    """List the settings of an algorithm's table to try.

    If the table has lists, these are the grid. Otherwise there are 27 settings: alpha, beta, and
    eta with gamma, times 1/4, 1 and 4 (nine values of alpha if there is no eta), around the file's
    own steps or those learned on this problem.
    """
    if sweeps.find_lists(table):
        return [
            TableSetting(expanded, sweeps.varied_options(expanded, table))
            for expanded in sweeps.expand_lists(table)
        ]
    schedules = _base_schedules(table, problem, network, seed, base=base)
    fixed_options = {key: value for key, value in table.items() if key not in ("steps", *schedules)}
    if "alpha" not in _given_schedules(table):
        fixed_options.setdefault("order", "atc")  # as for learned steps
    has_momentum = "eta" in schedules
    factors = (
        FACTORS if has_momentum else FINE_ALPHA_FACTORS,
        FACTORS,
        FACTORS if has_momentum else (1.0,),
    )
    settings = []
    for combination in product(*factors):
        factor_by_name = {
            n: f for f, names in zip(combination, FACTOR_LEVELS.values()) for n in names
        }
        scaled = {
            n: scaled_schedules.scale_schedule(s, factor_by_name.get(n, 1.0))
            for n, s in schedules.items()
        }
        first_values = {
            f"{n}_0": scaled_schedules.first_value(scaled[n]) for n in FACTOR_LEVELS if n in scaled
        }
        settings.append(
            TableSetting(
                fixed_options | {n: schedule_text.format_schedule(s) for n, s in scaled.items()},
                first_values,
            )
        )
    return settings


def _base_schedules(
    table: AlgorithmTable, problem: Problem, network: Network, seed: int, *, base: Path
) -> dict[str, Any]:
    """Return the schedules of the algorithm by name; learned ones after a few rounds."""
    given_schedules, algorithm = _given_schedules(table), read_algorithm(table, base).build()
    names = [
        name
        for name in STEP_NAMES
        if name in algorithm.schedule_values(0) and name not in given_schedules
    ]
    return given_schedules | scaled_schedules.make_schedules(
        learned_numbers(problem, network, algorithm, seed), names
    )


def _given_schedules(table: AlgorithmTable) -> dict[str, Any]:
    """Return the schedules that the table gives, in `steps` or by name."""
    steps = schedule_text.parse_schedules(table.get("steps", "auto"))
    names = ("alpha", "beta", "eta", "gamma", "delta")
    named = {name: schedule_text.parse(table[name]) for name in names if name in table}
    return ({} if steps == "auto" else dict(steps)) | named
