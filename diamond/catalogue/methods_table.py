"""Table of methods, derived from the parts of each method."""

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..algorithms.parts.composed import ComposedAlgorithm
from ..algorithms.parts.learned_algorithm import LearnedStepsAlgorithm
from ..algorithms.parts.provenance import Provenance
from ..algorithms.parts.single_stage import SingleStageMethod
from .registry import COMPOSED, LEVELS, maker, methods_for, names


class MethodRow(NamedTuple):
    """Description of a method."""

    name: str
    solves: str
    directions: str
    estimator: str
    moves: str  # of x, y and z
    plan: str
    exchanges: str  # per round, and the vectors sent to each neighbour
    networks: str  # widest kind on which it is correct
    convexity: str  # of the lower level that it needs: "strong", "any" or "-" without one
    calls: str  # oracle calls per round: mini-batch gradients of f and g, products
    reference: str
    source: str  # of the rule
    check: str  # what the tests show of it


RULE_NAMES = {"PushTracking": "push tracking"}


class ProblemKind(NamedTuple):
    """Kind of a problem, as far as a method adapts to it."""

    lower_level: str
    prox: None = None
    has_lower_solution: bool = True
    is_large: bool = False
    convex: bool = True
    streams: Mapping[str, Any] = MappingProxyType({})
    starts_at_random: bool = False


def describe_method(name: str, level: str | None = None) -> MethodRow:
    """Describe the method `name` with its default arguments.

    `level` is the kind of lower level; None: the first that the method solves.
    """
    make = maker(name)
    method = make()
    provenance = provenance_of(make)
    solves = ", ".join(method.lower_levels)
    convexity = "strong" if method.needs_strong_convexity else "any"
    if (level or method.lower_levels[0]) == "none":
        convexity = "-"
    method = method.specialize(ProblemKind(level or method.lower_levels[0]))
    networks = method.networks
    if isinstance(method, LearnedStepsAlgorithm):
        method = method.method
    if not isinstance(method, ComposedAlgorithm):
        is_own = isinstance(method, SingleStageMethod)
        about = method.about if is_own else "; ".join(["its own"] * 6)
        *vectors_per_stage, calls = about.split("; ")
        return MethodRow._make(
            (name, solves, *vectors_per_stage, networks, convexity, calls, *provenance)
        )
    kind = lambda part: RULE_NAMES.get(type(part).__name__, type(part).__name__.lower())
    moves = {n: kind(v.communication) for n, v in method.variables.items()}
    same = len(set(moves.values())) == 1 and len(moves) > 1
    communication = (
        next(iter(moves.values())) if same else ", ".join(f"{n} {m}" for n, m in moves.items())
    )
    vectors_per_stage, exchanges = [], []
    for word, _, repeats in (word.partition("*") for word in method.update_order.split()):
        parts = [
            n * method.variables[n].communication.vectors for n in word if n in method.variables
        ]
        if vectors := "".join(parts):
            vectors_per_stage.append("+".join(vectors))
            exchanges.append(repeats or "1")
    exchange_text = "; ".join(
        f"{k} of {v}" if k != "1" else v for k, v in zip(exchanges, vectors_per_stage)
    )
    return MethodRow(
        name,
        solves,
        kind(method.directions),
        kind(method.estimator),
        communication,
        " ".join(_moving_variables(word, method) for word in method.update_order.split()),
        exchange_text,
        networks,
        convexity,
        _oracle_calls(method),
        *provenance,
    )


def _moving_variables(word: str, method: ComposedAlgorithm) -> str:
    names, star, repeats = word.partition("*")
    return "".join(n for n in names if n in method.variables) + star + repeats


def _oracle_calls(method: ComposedAlgorithm) -> str:
    """Return the oracle calls of one agent in a round, per point of its estimator."""
    points = 2 if method.estimator.needs_previous_point else 1
    rows = "all rows" if method.estimator.full else "a batch"
    twice = " at two points" if points == 2 else ""
    return f"{method.directions.calls} on {rows}{twice}"


def provenance_of(make: Callable[..., Any]) -> Provenance:
    """Return the provenance that the module of a method declares."""
    declared: Provenance = vars(importlib.import_module(make.__module__)).get(
        "PROVENANCE", Provenance()
    )
    return declared


def methods_table() -> list[MethodRow]:
    """Return a row for each method."""
    return [describe_method(name) for name in names() if name != COMPOSED]


def markdown() -> str:
    """Return the table of docs/reference/methods.md, one for each kind of lower level."""
    shown = [field for field in MethodRow._fields if field != "solves"]
    lines: list[str] = []
    for level in LEVELS:
        heading = {"none": "No lower level"}.get(level, f"A {level} lower level")
        lines += ["", f"### {heading}", ""]
        lines += [f"| {' | '.join(shown)} |", f"| {' | '.join('---' for _ in shown)} |"]
        for method in (describe_method(name, level) for name in methods_for(level)):
            lines.append(f"| {' | '.join(getattr(method, field) for field in shown)} |")
    return "\n".join(lines[1:])
