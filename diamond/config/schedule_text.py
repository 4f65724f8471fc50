"""Step sizes in a file: a number, "power(0.3, omega=2)", or a table."""

import ast
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

from ..core.suggestions import did_you_mean
from ..schedules import step_schedules

KINDS: dict[str, Callable[..., Any]] = {
    name: getattr(step_schedules, name)
    for name in ("constant", "power", "scaled", "squared", "ramp")
}
CLASSES = {getattr(step_schedules, name.title()): name for name in KINDS}
EXAMPLE = 'write a number or, say, "power(0.3)"'


def parse(value: Any) -> Any:
    """Parse the schedule in `value`; raises ValueError with an explanation."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | dict):
        raise ValueError(f"{value!r} is no schedule; {EXAMPLE}")
    if isinstance(value, int | float):
        return _require_finite(value)
    if isinstance(value, dict):
        return _from_table(value)
    try:
        body = ast.parse(value.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{value!r} is no schedule; {EXAMPLE}") from None
    return _evaluate(body, value)


def parse_schedules(value: Any) -> Any:
    """Parse schedules by name: "auto", a table, or "paper(0.3, 3, 10, 10)" of Theorem 1."""
    if value == "auto":
        return value
    if isinstance(value, dict):
        return {name: parse(step_schedules) for name, step_schedules in value.items()}
    if isinstance(value, str) and (numbers := re.fullmatch(r"\s*paper\((.*)\)\s*", value)):
        return _paper(numbers[1], value)
    raise ValueError(f'{value!r} is neither "auto" nor a table of schedules nor "paper(...)"')


def _paper(numbers: str, text: str) -> dict[str, Any]:
    """Build `schedules.paper` from numbers in order."""
    taken = _parameter_names(step_schedules.paper)
    try:
        given = [float(_require_finite(float(word))) for word in numbers.split(",")]
        return step_schedules.paper(*given)
    except (TypeError, ValueError):
        raise ValueError(f"{text!r}: paper takes the numbers {', '.join(taken)}") from None


def format_schedule(schedule: Any) -> Any:
    """Return the text from which `parse` makes `schedule`; None if a file cannot express it."""
    if isinstance(schedule, int | float):
        return schedule
    name = CLASSES.get(type(schedule))
    if name is None:
        return None
    inner = {
        name: format_schedule(getattr(schedule, name)) for name in _parameter_names(KINDS[name])
    }
    if any(value is None for value in inner.values()):
        return None
    arguments = ", ".join(f"{k}={v}" for k, v in inner.items())
    return f"{name}({arguments})"


def _evaluate(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return _require_finite(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, text)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        above, below = _number(node.left, text), _number(node.right, text)
        if below == 0:
            raise ValueError(f"{text!r} divides by 0")
        return above / below
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        given = [_evaluate(argument, text) for argument in node.args]
        named = {k.arg: _evaluate(k.value, text) for k in node.keywords if k.arg}
        return _build_schedule(node.func.id, given, named)
    if isinstance(node, ast.Name) and node.id in KINDS:
        raise ValueError(f"{text!r} lacks its numbers; {EXAMPLE}")
    if isinstance(node, ast.Name):
        raise ValueError(f"no schedule {node.id!r}; {did_you_mean(node.id, KINDS)}")
    raise ValueError(f"{text!r} is no schedule; {EXAMPLE}")


def _number(node: ast.expr, text: str) -> float:
    value = _evaluate(node, text)
    if not isinstance(value, int | float):
        raise ValueError(f"{text!r}: only numbers have a sign or are divided")
    return value


def _from_table(table: dict[str, Any]) -> Any:
    options = dict(table)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ValueError('a schedule as a table needs its name: {name = "power", c = 0.3}')
    return _build_schedule(name, [], {key: parse(value) for key, value in options.items()})


def _build_schedule(name: str, given: list[Any], named: dict[str, Any]) -> Any:
    if name not in KINDS:
        raise ValueError(f"no schedule {name!r}; {did_you_mean(name, KINDS)}")
    fields = _parameter_names(KINDS[name])
    if unknown := [key for key in named if key not in fields]:
        raise ValueError(f"{name} has no {unknown[0]!r}; {did_you_mean(unknown[0], fields)}")
    try:
        bound = inspect.signature(KINDS[name]).bind(*given, **named)
    except TypeError as cause:
        raise ValueError(f"{name}({', '.join(fields)}): {cause}") from None
    for key, value in bound.arguments.items():
        if key != "of" and not isinstance(value, int | float):
            raise ValueError(f"{key} of {name} must be a number")
    return KINDS[name](*bound.args, **bound.kwargs)


def _parameter_names(make: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(make).parameters)


def _require_finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return value
