"""Settings that `diamond tune` tries: the lists of an algorithm, or steps around its own."""

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ..config import schedule_text, sweeps
from ..config.components import read_algorithm
from ..engine.pilot_run import learned_numbers
from ..network import Network
from ..problem import Problem
from . import scaled_schedules as around

FACTORS = (1 / 4, 1.0, 4.0)
FINE = tuple(4 ** (k / 4) for k in range(-4, 5))  # factors of alpha without eta: also 27 settings
LEVELS = {"alpha": ("alpha",), "beta": ("beta",), "eta": ("eta", "gamma")}
NAMES = ("alpha", "beta", "eta", "gamma")
Table = dict[str, Any]


class Setting(NamedTuple):
    """Algorithm's table with chosen values, and the options that identify the setting."""

    table: Table
    options: Table


def grid(
    table: Table, problem: Problem, network: Network, seed: int, base: Path = Path()
) -> list[Setting]:
    """List the settings of an algorithm's table to try.

    If the table has lists, these are the grid. Otherwise there are 27 settings: alpha, beta, and
    eta with gamma, times 1/4, 1 and 4 (nine values of alpha if there is no eta), around the file's
    own steps or those learned on this problem.
    """
    if sweeps.find_lists(table):
        return [
            Setting(one, sweeps.varied_options(one, table)) for one in sweeps.expand_lists(table)
        ]
    own = _own(table, problem, network, seed, base)
    fixed = {key: value for key, value in table.items() if key not in ("steps", *own)}
    if "alpha" not in _given(table):
        fixed.setdefault("order", "atc")  # as for learned steps
    momentum = "eta" in own
    factors = (FACTORS if momentum else FINE, FACTORS, FACTORS if momentum else (1.0,))
    found = []
    for chosen in product(*factors):
        factors_of = {n: f for f, names in zip(chosen, LEVELS.values()) for n in names}
        made = {n: around.times(s, factors_of.get(n, 1.0)) for n, s in own.items()}
        first = {f"{n}_0": around.first(made[n]) for n in LEVELS if n in made}
        found.append(
            Setting(fixed | {n: schedule_text.format_schedule(s) for n, s in made.items()}, first)
        )
    return found


def _own(table: Table, problem: Problem, network: Network, seed: int, base: Path) -> dict[str, Any]:
    """Return the schedules of the algorithm by name; learned ones after a few rounds."""
    given, made = _given(table), read_algorithm(table, base).build()
    names = [name for name in NAMES if name in made.schedule_values(0) and name not in given]
    return given | around.chosen(learned_numbers(problem, network, made, seed), names)


def _given(table: Table) -> dict[str, Any]:
    """Return the schedules that the table gives, in `steps` or by name."""
    steps = schedule_text.parse_schedules(table.get("steps", "auto"))
    names = ("alpha", "beta", "eta", "gamma", "delta")
    named = {name: schedule_text.parse(table[name]) for name in names if name in table}
    return ({} if steps == "auto" else dict(steps)) | named
