"""Options of a function from a table in a file, checked against the function's signature."""

import inspect
import json
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from .. import hypergradient
from ..core.suggestions import did_you_mean
from ..hypergradient import Hypergradient
from ..schedules.deferred import Deferred
from ..schedules.learned import Learned
from . import schedule_text
from .validation_errors import config_error, config_errors

STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=False)
NAMES = "neumann neumann_sum nesterov chebyshev conjugate_gradient exact unrolled warm_start"
HYPERGRADIENTS: dict[str, Callable[..., Any]] = {
    name: getattr(hypergradient, name) for name in (*NAMES.split(), "hessian_free", "partial")
}
VARIADIC = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)


class Options(NamedTuple):
    """Parsed options of a table."""

    arguments: dict[str, Any]  # ready to be passed to the function
    toml_values: dict[str, Any]  # as in a file, defaults included


def parameters(make: Callable[..., Any], without: Collection[str] = ()) -> dict[str, Parameter]:
    """Return the options of `make` by name."""
    try:
        signature = inspect.signature(make, eval_str=True)
    except NameError:  # an annotation whose name is undefined at run time
        signature = inspect.signature(make)
    return {name: p for name, p in signature.parameters.items() if name not in without}


def build_with_options(
    name: str, make: Callable[..., Any], table: Mapping[str, Any]
) -> tuple[Any, Options]:
    """Call `make` with the options in `table`; return its result and all options.

    Raises ValidationError with every mistake.
    """
    options, mistakes = _parse(name, parameters(make), table)
    missing = any(
        p.default is Parameter.empty and p.kind not in VARIADIC and key not in options.arguments
        for key, p in parameters(make).items()
    )
    result = None
    try:
        result = None if missing else make(**options.arguments)
    except (ValueError, TypeError) as cause:
        mistakes.append(((), str(cause), None))
    if mistakes:
        raise config_errors(mistakes)
    return result, options


def parse_options(name: str, taken: Mapping[str, Parameter], table: Mapping[str, Any]) -> Options:
    """Check `table` against the parameters `taken`; raises ValidationError with every mistake."""
    options, mistakes = _parse(name, taken, table)
    if mistakes:
        raise config_errors(mistakes)
    return options


def _parse(
    function_name: str, taken: Mapping[str, Parameter], table: Mapping[str, Any]
) -> tuple[Options, list[tuple[tuple[str | int, ...], str, Any]]]:
    """Parse the valid options in `table`, and list the mistakes in the others."""
    named = {name: p for name, p in taken.items() if p.kind not in VARIADIC}
    open_ended = any(p.kind == Parameter.VAR_KEYWORD for p in taken.values())
    mistakes: list[tuple[tuple[str | int, ...], str, Any]] = []
    arguments, toml_values = {}, {}
    for key, value in table.items():
        if key not in named and not open_ended:
            message = f"is no option of {function_name}; {did_you_mean(key, named)}"
            mistakes.append(((key,), message, value))
            continue
        try:
            arguments[key] = _convert_value(named[key], value) if key in named else value
            toml_values[key] = value
        except ValidationError as error:
            mistakes += [((key, *e["loc"]), e["ctx"]["message"], value) for e in error.errors()]
        except ValueError as error:
            mistakes.append(((key,), str(error), value))
    for key, parameter in named.items():
        if key in table:
            continue
        if parameter.default is Parameter.empty:
            mistakes.append(((key,), f"is missing: {function_name} needs it", None))
        elif (default := to_toml_value(parameter.default)) is not None:
            toml_values[key] = default
    return Options(arguments, toml_values), mistakes


def _convert_value(parameter: Parameter, value: Any) -> Any:
    """Convert `value` into the object that `parameter` expects."""
    annotation, default = parameter.annotation, parameter.default
    if Hypergradient in (annotation, *_union_members(annotation)):
        return build_hypergradient(value)
    if any(get_origin(member) is Callable for member in _union_members(annotation)):
        return schedule_text.parse(value)
    if any(get_origin(member) is Mapping for member in _union_members(annotation)):
        return schedule_text.parse_schedules(value)
    free = annotation in (Parameter.empty, Any)
    number = isinstance(default, int | float) and not isinstance(default, bool)
    if (free and number) or (Any in _union_members(annotation) and not free):
        return validate_type(int | float, value)
    return value if free else validate_type(annotation, value)


def build_hypergradient(value: Any) -> Any:
    """Build the hypergradient that `value` names: "exact", or {name = "neumann", terms = 10}."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ValueError('write a name or a table, as in {name = "neumann", terms = 10}')
    options = dict(table)
    name = options.pop("name").replace("-", "_")
    if name not in HYPERGRADIENTS:
        raise config_error(
            f"no hypergradient {name!r}; {did_you_mean(name, HYPERGRADIENTS)}", "name"
        )
    return build_with_options(name, HYPERGRADIENTS[name], options)[0]


def validate_type(annotation: Any, value: Any) -> Any:
    """Return `value` if its type is `annotation`; JSON types, so that a list may be a tuple."""
    try:
        adapter = TypeAdapter(annotation, config=STRICT)
    except PydanticSchemaGenerationError:  # an array or a matrix, which the function itself checks
        return value
    try:
        return adapter.validate_json(json.dumps(value))
    except (ValidationError, TypeError):
        raise ValueError(f"must be {describe_type(annotation)}, not {value!r}") from None


def describe_type(annotation: Any) -> str:
    """Describe the type that an annotation requires."""
    plain = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
    if annotation == int | float:
        return "a number"
    if annotation in plain:
        return plain[annotation]
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        descriptions = [describe_type(part) for part in inside if part is not types.NoneType]
        return " or ".join(dict.fromkeys(descriptions))
    if origin is Literal:
        return "one of " + ", ".join(map(str, inside))
    if origin in (list, tuple, Sequence) or annotation in (list, tuple):
        kinds = [part for part in inside if part is not ...]
        plurals = {int: "whole numbers", float: "numbers", str: "texts"}
        return f"a list of {plurals.get(kinds[0], 'values') if kinds else 'values'}"
    if origin is dict or annotation is dict:
        return "a table"
    return getattr(annotation, "__name__", str(annotation))


def _union_members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, else the annotation alone."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def to_toml_value(default: Any) -> Any:
    """Format a default as in a file; None if it cannot be written or is implied by omission."""
    if isinstance(default, bool | int | float | str):
        return default
    if isinstance(default, list | tuple):
        inside = [to_toml_value(part) for part in default]
        return None if None in inside else inside
    return schedule_text.format_schedule(default) or _hypergradient_table(default)


def _hypergradient_table(estimator: Any) -> dict[str, Any] | None:
    """Return the table from which `build_hypergradient` makes `estimator`, without deferred
    values."""
    for name, make in HYPERGRADIENTS.items():
        sample = make()
        inner, inner_sample = (
            getattr(estimator, "solve", estimator),
            getattr(sample, "solve", sample),
        )
        if (type(estimator), type(inner)) == (type(sample), type(inner_sample)):
            values = {key: getattr(inner, key) for key in parameters(make)}
            options = {
                k: v for k, v in values.items() if not isinstance(v, Deferred | Learned | None)
            }
            return {"name": name, **options}
    return None
