"""Table of methods, derived from the parts of each method."""

import importlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ..interface.round_interface import NETWORKS
from .registry import COMPOSED, LEVELS, maker, names, solving


class Row(NamedTuple):
    """Description of a method."""

    name: str
    solves: str
    directions: str
    estimator: str
    moves: str  # of x, y and z
    plan: str
    exchanges: str  # per round, and the vectors sent to each neighbour
    networks: str  # widest kind on which it is correct
    calls: str  # oracle calls per round: mini-batch gradients of f and g, products
    reference: str
    rule: str  # verification status


NAMED = {"PushTracking": "push tracking"}


class Kind(NamedTuple):
    """Kind of a problem, as far as a method adapts to it."""

    lower_level: str
    prox: None = None


def row(name: str, level: str | None = None) -> Row:
    """Describe the method `name` with its default arguments.

    `level` is the kind of lower level; None: the first that the method solves.
    """
    make = maker(name)
    method = make()
    title, rule = _said(make)
    solves = ", ".join(method.lower_levels)
    if hasattr(method, "specialize"):
        method = method.specialize(Kind(level or method.lower_levels[0]))
    method = getattr(method, "method", method)  # without the wrapper that learns numbers
    networks = getattr(method, "networks", NETWORKS[0])
    if not hasattr(method, "directions"):
        about = getattr(method, "about", "; ".join(["its own"] * 6))
        *told, calls = about.split("; ")
        return Row._make((name, solves, *told, networks, calls, title, rule))
    kind = lambda part: NAMED.get(type(part).__name__, type(part).__name__.lower())
    moves = {n: kind(v.communication) for n, v in method.variables.items()}
    same = len(set(moves.values())) == 1 and len(moves) > 1
    said = next(iter(moves.values())) if same else ", ".join(f"{n} {m}" for n, m in moves.items())
    told, exchanges = [], []
    for word, _, times in (word.partition("*") for word in method.update_order.split()):
        parts = [
            n * method.variables[n].communication.vectors for n in word if n in method.variables
        ]
        if vectors := "".join(parts):
            told.append("+".join(vectors))
            exchanges.append(times or "1")
    tells = "; ".join(f"{k} of {v}" if k != "1" else v for k, v in zip(exchanges, told))
    return Row(
        name,
        solves,
        kind(method.directions),
        kind(method.estimator),
        said,
        " ".join(_moved(word, method) for word in method.update_order.split()),
        tells,
        networks,
        _calls(method),
        title,
        rule,
    )


def _moved(word: str, method: Any) -> str:
    names, star, times = word.partition("*")
    return "".join(n for n in names if n in method.variables) + star + times


def _calls(method: Any) -> str:
    """Return the oracle calls of one agent in a round, per point of its estimator."""
    points = 2 if method.estimator.needs_previous_point else 1
    found = {
        "gradient": "f",
        "implicit": "f, g, chain, g_xy",
        "carried": "f, g, g_yy, g_xy",
        "penalty": "f, 2 g",
    }
    rows = "all rows" if getattr(method.estimator, "full", False) else "a batch"
    kind = type(method.directions).__name__.lower()
    twice = " at two points" if points == 2 else ""
    return f"{found.get(kind, kind)} on {rows}{twice}"


def _said(make: Callable[..., Any]) -> tuple[str, str]:
    """Return the reference and the verification status from the docstring of a method's module."""
    module = importlib.import_module(make.__module__).__doc__ or ""
    rule = re.search(r"^Rule: (.+)\.$", module, re.MULTILINE)
    return module.split("\n")[0].partition(":")[0], rule.group(1) if rule else ""


def table() -> list[Row]:
    """Return a row for each method."""
    return [row(name) for name in names() if name != COMPOSED]


def markdown() -> str:
    """Return the table of docs/methods.md, one for each kind of lower level."""
    shown = [field for field in Row._fields if field != "solves"]
    lines: list[str] = []
    for level in LEVELS:
        heading = {"none": "No lower level"}.get(level, f"A {level} lower level")
        lines += ["", f"### {heading}", ""]
        lines += [f"| {' | '.join(shown)} |", f"| {' | '.join('---' for _ in shown)} |"]
        for found in (row(name, level) for name in solving(level)):
            lines.append(f"| {' | '.join(getattr(found, field) for field in shown)} |")
    return "\n".join(lines[1:])
