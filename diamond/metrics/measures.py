"""Selection of measures: three sets, single measures by name, and user functions.

    exact   stationarity, consensus, lower error and losses at y*(x), which is solved for (`exact`)
    loss    the upper loss at y*(x) alone
    cheap   measures without y*: local loss, consensus, norms of the sampled directions; if y is
            large or the lower level not convex, also the upper loss at the agents' y, the lower
            loss, its gradient and a value gap, on fixed samples of rows (`sampled_measures`)

The user's metrics are part of `exact` and `cheap`. Costs are always counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from ..core import pytrees
from ..core.pytrees import Tree
from ..core.suggestions import did_you_mean
from ..hardware.compiler import FAST_COMPILE_OPTIONS, MEASURE_OPTIONS, compile_program
from ..hypergradient.diagnostics.lipschitz import Probes, curvature
from ..interface.round_interface import state_part
from ..problem import Loss, Objectives, Problem, Rows
from .agent_statistics import AgentStatistics
from .exact_measures import Metrics, measure_exactly, upper_loss
from .sampled_measures import measure_on_samples
from .standard_errors import SUFFIX, average_variances

Measure = str | Sequence[str | Callable[..., Any]]
SETS = ("exact", "loss", "cheap")
LOSS = ("upper_loss",)
DIRECTIONS = ("x_direction", "y_direction")
CHEAP = ("local_loss", "consensus", "y_consensus", "z_consensus", *DIRECTIONS)
SAMPLED = ("lower_loss", "lower_gradient", "value_gap")
SOLVED = ("stationarity", "lower_error", "metric", "definition1", "solver_error", "curvature")


@dataclass(frozen=True)
class Measures:
    """The measures of a run, and the programs that compute them."""

    programs: frozenset[str]  # names in SETS, "sampled" and "directions"
    names: frozenset[str] | None = None  # single measures; None: all that the programs compute
    functions: tuple[tuple[str, Loss], ...] = ()  # user functions beside the problem's metrics

    def is_requested(self, name: str) -> bool:
        """Return whether a column of the programs was requested."""
        return self.names is None or name.removesuffix(SUFFIX) in self.names

    def check_measured(self, names: Sequence[str], where: str) -> None:
        """Raise if a required measure is not computed."""
        known = {*LOSS, *CHEAP, *SAMPLED, *SOLVED}
        for name in names:
            if name in known and not (
                self.is_requested(name) and _is_computed(name, self.programs)
            ):
                raise ValueError(
                    f"{where} needs {name}, which this run does not measure: give "
                    f"measure='exact', or a list that contains {name!r}"
                )


def resolve_measure(measure: Measure | None, problem: Problem) -> Measure:
    """Return `measure`; None is "exact" if runs solve for y*(x), "cheap" otherwise."""
    if measure is not None:
        return measure
    return "exact" if problem.has_lower_solution else "cheap"


def parse_measures(measure: Measure | None, problem: Problem) -> Measures:
    """Parse the argument `measure` of a run.

    Args:
        measure: "exact", "loss" or "cheap"; the name of a measure; or a list of these and of
            functions of x, y and rows, which are averaged over rows and agents; None: see
            `resolve_measure`.
        problem: the problem, whose metrics may be named.

    Raises:
        ValueError: an unknown name; the message suggests the nearest known one.
    """
    measure = resolve_measure(measure, problem)
    items = [measure] if isinstance(measure, str) or callable(measure) else list(measure)
    functions = tuple((_name(item), item) for item in items if callable(item))
    names_given = [item for item in items if not callable(item)]
    known = (*SETS, *LOSS, *CHEAP, *SAMPLED, *SOLVED, *problem.metrics)
    solves = problem.has_lower_solution
    for word in names_given:
        if word not in known:
            raise ValueError(f"measure: no measure {word!r}; {did_you_mean(str(word), known)}")
    if not items:
        raise ValueError("measure: give 'exact', 'loss', 'cheap' or at least one measure")
    if names_given in (["exact"], ["cheap"]):
        return Measures(frozenset(_needed_programs(names_given, solves)), None, functions)
    names = {*names_given} - {*SETS} | {name for name, _ in functions}
    words = [*names_given, *(["local_loss"] if functions else [])]
    programs = frozenset(_needed_programs(words, solves))
    if "exact" in names_given:
        names |= {*LOSS, *CHEAP, *SOLVED, *problem.metrics} - {*DIRECTIONS}
    if "cheap" in names_given:
        names |= {*CHEAP, *problem.metrics} | (set() if solves else {*LOSS, *SAMPLED})
    if "loss" in names_given:
        names |= {*LOSS}
    return Measures(programs, frozenset(names), functions)


def describe_measure(measure: Measure) -> str | list[str]:
    """Describe the argument `measure`, for files."""
    items = [measure] if isinstance(measure, str) or callable(measure) else measure
    words = [item if isinstance(item, str) else _name(item) for item in items]
    return words[0] if len(words) == 1 else words


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _needed_programs(words: Sequence[str], solves: bool) -> list[str]:
    """Return the programs that compute these sets and measures.

    `solves`: whether single measures may solve for y*(x) without being asked to.
    """
    if "exact" in words or {*words} & {*SOLVED}:
        programs = ["exact"]
    elif not solves:
        programs = ["loss"] * ("loss" in words) + ["sampled"] * (words != ["loss"])
    else:
        loss = "loss" in words or "upper_loss" in words
        cheap = bool({*words} - {"loss", "upper_loss", *SAMPLED})
        programs = ["loss"] * loss + ["cheap"] * cheap
    if {*words} & {*SAMPLED} and "sampled" not in programs:
        programs.append("sampled")
    directions = "cheap" in words or {*words} & {*DIRECTIONS}
    return [*programs, *(["directions"] if directions else [])]


def _is_computed(name: str, programs: frozenset[str]) -> bool:
    if name in DIRECTIONS:
        return "directions" in programs
    if name in SOLVED:
        return "exact" in programs
    if name in SAMPLED:
        return "sampled" in programs
    return bool(programs & {"exact", "sampled", "loss" if name in LOSS else "cheap"})


def sampled_directions(state: Any) -> dict[str, Tree]:
    """Return the sampled directions of x and y of the last round, as far as the state has them.

    A method that learns its step size has the squared norm of the direction of x.
    """
    directions = {"x_direction": state_part(state, "p"), "y_direction": state_part(state, "v")}
    learned = state_part(state_part(state, "step"), "direction")
    if directions["x_direction"] is None and learned is not None:
        directions["x_direction"] = jnp.sqrt(learned[..., -1])
    return {name: value for name, value in directions.items() if value is not None}


class MeasuredState(NamedTuple):
    """Arrays of all agents that are measured; for parallel runs, with an axis of runs first."""

    x: Tree
    y: Tree
    z: Tree  # None if the method has none or no measure needs it
    probes: Probes | None  # mini-batches for the curvature of g_yy, for `exact`
    guess: Tree  # start of the solution for y*(xbar), for `loss`; y if not finite
    directions: dict[str, Tree]  # of `sampled_directions`


def measure_all(
    problem: Objectives,
    rows: Rows,
    metrics: Metrics,
    state: MeasuredState,
    programs: frozenset[str],
    agents: int | None = None,
    shared: NamedSharding | None = None,
    size: int | None = None,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], Tree]:
    """Measure all agents.

    Args:
        programs: programs of `Measures` to compute.
        agents, shared, size: see `AgentStatistics`.

    Returns:
        Measures of all agents together, per-agent measures, and y*(xbar).
    """
    x, y, z, probes, guess, directions = state
    places = problem.train.count.shape[0]
    over = AgentStatistics(places, agents or places, shared, size)
    measures: dict[str, jax.Array] = {}
    per_agent: dict[str, jax.Array] = {}
    if "exact" in programs:
        measures, per_agent = measure_exactly(problem, rows, metrics, x, y, z, over)
        if probes is not None:
            measures |= {"curvature": curvature(problem, x, y, probes).max()}
    elif "cheap" in programs:
        measures, per_agent = measure_cheaply(problem, rows, metrics, x, y=y, z=z, over=over)
    if "sampled" in programs:
        sampled, sampled_per_agent = measure_on_samples(problem, rows, metrics, x, y, z, over)
        measures, per_agent = sampled | measures, sampled_per_agent | per_agent
    if "loss" in programs:
        measures["upper_loss"], guess = upper_loss(problem, x, y, guess, over)
    for name, value in directions.items() if "directions" in programs else ():
        squares = jax.vmap(lambda a: pytrees.dot(a, a))(value)
        per_agent[name] = jnp.sqrt(squares)
        measures[name] = jnp.sqrt(over.total(squares) / over.count)
    return measures, per_agent, guess


def measure_cheaply(
    problem: Objectives,
    rows: Rows,
    metrics: Metrics,
    x: Tree,
    *,
    y: Tree,
    z: Tree,
    over: AgentStatistics,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Return `local_loss`, `consensus` and the metrics at the agents' own x and y, without y*."""
    mean = over.average(x)
    is_sampled = problem.valid.is_sample or rows.is_sample

    def measure_agent(problem: Objectives, rows: Rows, x: Tree, y: Tree) -> tuple[Any, Any]:
        deviation = pytrees.sub(x, mean)
        per_agent = {
            "consensus": pytrees.dot(deviation, deviation),
            "local_loss": problem.f(x, y, None),
        }
        per_agent |= {name: rows.mean(loss, x, y) for name, loss in metrics}
        return per_agent, average_variances(metrics, problem, rows, x, y) if is_sampled else {}

    with jax.default_matmul_precision("highest"):
        per_agent, variances = over.map_agents(measure_agent)(problem, rows, x, y)
    sums = jax.tree.map(over.total, per_agent)
    consensus_terms = over.common_consensus(problem, y, z)
    errors = {n + SUFFIX: jnp.sqrt(over.total(v)) / over.count for n, v in variances.items()}
    means = {name: value / over.count for name, value in sums.items() if name != "consensus"}
    return {"consensus": sums["consensus"], **consensus_terms, **means, **errors}, per_agent


_STATIC = ("metrics", "programs", "agents", "shared", "size")
_SMALL_OPTIONS: dict[str, Any] = {"small": 2**19, "small_options": FAST_COMPILE_OPTIONS}
measurement = compile_program(*_STATIC, options=MEASURE_OPTIONS, **_SMALL_OPTIONS)(measure_all)
# Compiled with all effort for any number of rows, because it measures often.
frequent_measurement = compile_program(*_STATIC, options=MEASURE_OPTIONS, small=0)(measure_all)


def measure_all_lanes(
    problem: Objectives,
    rows: Rows,
    metrics: Metrics,
    states: MeasuredState,
    programs: frozenset[str],
    size: int | None = None,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], Tree]:
    """Run `measure_all` for parallel runs: all arrays of `states` have an axis of runs."""
    measure_lane = lambda state: measure_all(problem, rows, metrics, state, programs, size=size)
    return jax.vmap(measure_lane)(states)


lane_measurement = compile_program(
    "metrics", "programs", "size", options=MEASURE_OPTIONS, **_SMALL_OPTIONS
)(measure_all_lanes)
