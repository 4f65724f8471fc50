"""Selection of measures: three sets, single measures by name, and user functions.

    exact   stationarity, consensus, lower error and losses at y*(x), which is solved for (`exact`)
    loss    the upper loss at y*(x) alone
    cheap   measures without y*: local loss, consensus, norms of the sampled directions

The user's metrics are part of `exact` and `cheap`. Costs are always counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from ..core import pytrees
from ..core.pytrees import Tree
from ..core.suggestions import did_you_mean
from ..hardware.compiler import BRIEF, MEASURES, compiled
from ..hypergradient.diagnostics.lipschitz import Probes, curvature
from ..problem import Loss, Objectives, Problem, Rows
from .agent_statistics import OverAgents
from .exact_measures import Metrics, measure_exactly
from .standard_errors import SUFFIX, averages
from .upper_loss import upper_loss

Measure = str | Sequence[str | Callable[..., Any]]
SETS = ("exact", "loss", "cheap")
LOSS = ("upper_loss",)
DIRECTIONS = ("x_direction", "y_direction")
CHEAP = ("local_loss", "consensus", "y_consensus", "z_consensus", *DIRECTIONS)
SOLVED = ("stationarity", "lower_error", "metric", "definition1", "solver_error", "curvature")


@dataclass(frozen=True)
class Measures:
    """The measures of a run, and the programs that compute them."""

    programs: frozenset[str]  # names in SETS, and "directions"
    names: frozenset[str] | None = None  # single measures; None: all that the programs compute
    functions: tuple[tuple[str, Loss], ...] = ()  # user functions beside the problem's metrics

    def keeps(self, name: str) -> bool:
        """Return whether a column of the programs was requested."""
        return self.names is None or name.removesuffix(SUFFIX) in self.names

    def refuse_unmeasured(self, names: Sequence[str], where: str) -> None:
        """Raise if a required measure is not computed."""
        known = {*LOSS, *CHEAP, *SOLVED}
        for name in names:
            if name in known and not (self.keeps(name) and _computed(name, self.programs)):
                raise ValueError(
                    f"{where} needs {name}, which this run does not measure: give "
                    f"measure='exact', or a list that contains {name!r}"
                )


def parse_measures(measure: Measure, problem: Problem) -> Measures:
    """Parse the argument `measure` of a run.

    Args:
        measure: "exact", "loss" or "cheap"; the name of a measure; or a list of these and of
            functions of x, y and rows, which are averaged over rows and agents.
        problem: the problem, whose metrics may be named.

    Raises:
        ValueError: an unknown name; the message suggests the nearest known one.
    """
    items = [measure] if isinstance(measure, str) or callable(measure) else list(measure)
    functions = tuple((_name(item), item) for item in items if callable(item))
    words = [item for item in items if not callable(item)]
    known = (*SETS, *LOSS, *CHEAP, *SOLVED, *problem.metrics)
    for word in words:
        if word not in known:
            raise ValueError(f"measure: no measure {word!r}; {did_you_mean(str(word), known)}")
    if not items:
        raise ValueError("measure: give 'exact', 'loss', 'cheap' or at least one measure")
    if words in (["exact"], ["cheap"]):
        return Measures(frozenset(_needed(words)), None, functions)
    names = {*words} - {*SETS} | {name for name, _ in functions}
    programs = frozenset(_needed([*words, *(["local_loss"] if functions else [])]))
    if "exact" in words:
        names |= {*LOSS, *CHEAP, *SOLVED, *problem.metrics} - {*DIRECTIONS}
    if "cheap" in words:
        names |= {*CHEAP, *problem.metrics}
    if "loss" in words:
        names |= {*LOSS}
    return Measures(programs, frozenset(names), functions)


def describe_measure(measure: Measure) -> str | list[str]:
    """Describe the argument `measure`, for files."""
    items = [measure] if isinstance(measure, str) or callable(measure) else measure
    words = [item if isinstance(item, str) else _name(item) for item in items]
    return words[0] if len(words) == 1 else words


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _needed(words: Sequence[str]) -> list[str]:
    """Return the programs that compute these sets and measures."""
    if "exact" in words or {*words} & {*SOLVED}:
        programs = ["exact"]
    else:
        loss = "loss" in words or "upper_loss" in words
        cheap = bool({*words} - {"loss", "upper_loss"})
        programs = ["loss"] * loss + ["cheap"] * cheap
    directions = "cheap" in words or {*words} & {*DIRECTIONS}
    return [*programs, *(["directions"] if directions else [])]


def _computed(name: str, programs: frozenset[str]) -> bool:
    if name in DIRECTIONS:
        return "directions" in programs
    if name in SOLVED:
        return "exact" in programs
    return bool(programs & ({"exact", "loss"} if name in LOSS else {"exact", "cheap"}))


def sampled_directions(state: Any) -> dict[str, Tree]:
    """Return the sampled directions of x and y of the last round, as far as the state has them.

    A method that learns its step size has the squared norm of the direction of x.
    """
    found = {"x_direction": getattr(state, "p", None), "y_direction": getattr(state, "v", None)}
    step = getattr(state, "step", None)
    if found["x_direction"] is None and step is not None and hasattr(step, "direction"):
        found["x_direction"] = jnp.sqrt(step.direction[..., -1])
    return {name: value for name, value in found.items() if value is not None}


def survey(
    problem: Objectives,
    rows: Rows,
    metrics: Metrics,
    x: Tree,
    y: Tree,
    z: Tree,
    probes: Probes | None,
    guess: Tree,
    directions: dict[str, Tree],
    programs: frozenset[str],
    agents: int | None = None,
    shared: NamedSharding | None = None,
    size: int | None = None,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], Tree]:
    """Measure all agents.

    Args:
        problem: losses and rows of all agents.
        rows: rows that metrics are averaged over.
        metrics: names and functions of metrics.
        x, y, z: of all agents; z is None if the method has none or no measure needs it.
        probes: mini-batches for the curvature of g_yy, for `exact`.
        guess: start of the solution for y*(xbar), for `loss`; y if not finite.
        directions: of `sampled_directions`.
        programs: programs of `Measures` to compute.
        agents, shared, size: see `OverAgents`.

    Returns:
        Measures of all agents together, per-agent measures, and y*(xbar).
    """
    places = problem.train.count.shape[0]
    over = OverAgents(places, agents or places, shared, size)
    found: dict[str, jax.Array] = {}
    own: dict[str, jax.Array] = {}
    if "exact" in programs:
        found, own = measure_exactly(problem, rows, metrics, x, y, z, over)
        if probes is not None:
            found |= {"curvature": curvature(problem, x, y, probes).max()}
    elif "cheap" in programs:
        found, own = measure_cheaply(problem, rows, metrics, x, y, z, over)
    if "loss" in programs:
        found["upper_loss"], guess = upper_loss(problem, x, y, guess, over)
    for name, value in directions.items() if "directions" in programs else ():
        squares = jax.vmap(lambda a: pytrees.dot(a, a))(value)
        own[name] = jnp.sqrt(squares)
        found[name] = jnp.sqrt(over.total(squares) / over.count)
    return found, own, guess


def measure_cheaply(
    problem: Objectives, rows: Rows, metrics: Metrics, x: Tree, y: Tree, z: Tree, over: OverAgents
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Return `local_loss`, `consensus` and the metrics at the agents' own x and y, without y*."""
    mean = over.average(x)
    sampled = problem.valid.sampled or rows.sampled

    def alone(problem: Objectives, rows: Rows, x: Tree, y: Tree) -> tuple[Any, Any]:
        off = pytrees.sub(x, mean)
        own = {"consensus": pytrees.dot(off, off), "local_loss": problem.f(x, y, None)}
        own |= {name: rows.mean(loss, x, y) for name, loss in metrics}
        return own, averages(metrics, problem, rows, x, y) if sampled else {}

    with jax.default_matmul_precision("highest"):
        own, variances = over.each(alone)(problem, rows, x, y)
    sums = jax.tree.map(over.total, own)
    apart = {}
    if problem.lower_level == "common":
        apart = {f"{n}_consensus": over.spread(s) for n, s in (("y", y), ("z", z)) if s is not None}
    errors = {n + SUFFIX: jnp.sqrt(over.total(v)) / over.count for n, v in variances.items()}
    means = {name: value / over.count for name, value in sums.items() if name != "consensus"}
    return {"consensus": sums["consensus"], **apart, **means, **errors}, own


_STATIC = ("metrics", "programs", "agents", "shared", "size")
observe = compiled(*_STATIC, options=MEASURES, small=2**19, less=BRIEF)(survey)
observe_often = compiled(*_STATIC, options=MEASURES, small=0)(survey)  # with any number of rows


def survey_lanes(
    problem: Objectives,
    rows: Rows,
    metrics: Metrics,
    x: Tree,
    y: Tree,
    z: Tree,
    probes: Probes | None,
    guess: Tree,
    directions: dict[str, Tree],
    programs: frozenset[str],
    size: int | None = None,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array], Tree]:
    """Run `survey` for parallel runs: x, y, z, probes, guess, directions have an axis of runs."""

    def of_lane(x: Tree, y: Tree, z: Tree, probes: Any, guess: Tree, directions: Any) -> Any:
        point = x, y, z, probes, guess, directions
        return survey(problem, rows, metrics, *point, programs, size=size)

    return jax.vmap(of_lane)(x, y, z, probes, guess, directions)


observe_lanes = compiled("metrics", "programs", "size", options=MEASURES, small=2**19, less=BRIEF)(
    survey_lanes
)
