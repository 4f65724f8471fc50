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
from .validation_errors import several, wrong

STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=False)
HYPERGRADIENTS: dict[str, Callable[..., Any]] = {
    "neumann": hypergradient.neumann,
    "neumann_sum": hypergradient.neumann_sum,
    "nesterov": hypergradient.nesterov,
    "chebyshev": hypergradient.chebyshev,
    "conjugate_gradient": hypergradient.conjugate_gradient,
    "exact": hypergradient.exact,
    "unrolled": hypergradient.unrolled,
    "warm_start": hypergradient.warm_start,
    "hessian_free": hypergradient.hessian_free,
}
VARIADIC = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)


class Options(NamedTuple):
    """Parsed options of a table."""

    objects: dict[str, Any]  # ready to be passed to the function
    spelled: dict[str, Any]  # as in a file, defaults included


def parameters(make: Callable[..., Any], without: Collection[str] = ()) -> dict[str, Parameter]:
    """Return the options of `make` by name."""
    try:
        signature = inspect.signature(make, eval_str=True)
    except NameError:  # an annotation whose name is undefined at run time
        signature = inspect.signature(make)
    return {name: p for name, p in signature.parameters.items() if name not in without}


def build(what: str, make: Callable[..., Any], given: Mapping[str, Any]) -> tuple[Any, Options]:
    """Call `make` with `given`; return its result and all options. Raises with every mistake."""
    options, found = _look(what, parameters(make), given)
    missing = any("is missing" in said for _, said, _ in found)
    result = None
    try:
        result = None if missing else make(**options.objects)
    except (ValueError, TypeError) as cause:
        found.append(((), str(cause), None))
    if found:
        raise several(found)
    return result, options


def read(what: str, taken: Mapping[str, Parameter], given: Mapping[str, Any]) -> Options:
    """Check `given` against the parameters `taken`; raises ValidationError with every mistake."""
    options, found = _look(what, taken, given)
    if found:
        raise several(found)
    return options


def _look(
    what: str, taken: Mapping[str, Parameter], given: Mapping[str, Any]
) -> tuple[Options, list[tuple[tuple[str | int, ...], str, Any]]]:
    """Parse the valid options in `given`, and list the mistakes in the others."""
    named = {name: p for name, p in taken.items() if p.kind not in VARIADIC}
    open_ended = any(p.kind == Parameter.VAR_KEYWORD for p in taken.values())
    found: list[tuple[tuple[str | int, ...], str, Any]] = []
    objects, spelled = {}, {}
    for key, value in given.items():
        if key not in named and not open_ended:
            said = f"is no option of {what}; {did_you_mean(key, named)}"
            found.append(((key,), said, value))
            continue
        try:
            objects[key] = _value(named[key], value) if key in named else value
            spelled[key] = value
        except ValidationError as error:
            found += [((key, *e["loc"]), e["ctx"]["said"], value) for e in error.errors()]
        except ValueError as error:
            found.append(((key,), str(error), value))
    for key, parameter in named.items():
        if key in given:
            continue
        if parameter.default is Parameter.empty:
            found.append(((key,), f"is missing: {what} needs it", None))
        elif (said := as_written(parameter.default)) is not None:
            spelled[key] = said
    return Options(objects, spelled), found


def _value(parameter: Parameter, value: Any) -> Any:
    """Convert `value` into the object that `parameter` expects."""
    annotation, default = parameter.annotation, parameter.default
    if Hypergradient in (annotation, *_members(annotation)):
        return estimator(value)
    if any(get_origin(member) is Callable for member in _members(annotation)):
        return schedule_text.parse(value)
    if any(get_origin(member) is Mapping for member in _members(annotation)):
        return schedule_text.several(value)
    free = annotation in (Parameter.empty, Any)
    number = isinstance(default, int | float) and not isinstance(default, bool)
    if (free and number) or (Any in _members(annotation) and not free):
        return typed(int | float, value)
    return value if free else typed(annotation, value)


def estimator(value: Any) -> Any:
    """Build the hypergradient that `value` names: "exact", or {name = "neumann", terms = 10}."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ValueError('write a name or a table, as in {name = "neumann", terms = 10}')
    given = dict(table)
    name = given.pop("name").replace("-", "_")
    if name not in HYPERGRADIENTS:
        raise wrong(f"no hypergradient {name!r}; {did_you_mean(name, HYPERGRADIENTS)}", "name")
    return build(name, HYPERGRADIENTS[name], given)[0]


def typed(annotation: Any, value: Any) -> Any:
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
        said = [describe_type(part) for part in inside if part is not types.NoneType]
        return " or ".join(dict.fromkeys(said))
    if origin is Literal:
        return "one of " + ", ".join(map(str, inside))
    if origin in (list, tuple, Sequence) or annotation in (list, tuple):
        kinds = [part for part in inside if part is not ...]
        each = {int: "whole numbers", float: "numbers", str: "texts"}
        return f"a list of {each.get(kinds[0], 'values') if kinds else 'values'}"
    if origin is dict or annotation is dict:
        return "a table"
    return getattr(annotation, "__name__", str(annotation))


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, else the annotation alone."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def as_written(default: Any) -> Any:
    """Format a default as in a file; None if it cannot be written or is implied by omission."""
    if isinstance(default, bool | int | float | str):
        return default
    if isinstance(default, list | tuple):
        inside = [as_written(part) for part in default]
        return None if None in inside else inside
    return schedule_text.spell(default) or _estimator_table(default)


def _estimator_table(made: Any) -> dict[str, Any] | None:
    """Return the table from which `estimator` makes `made`, without values left to the run."""
    for name, make in HYPERGRADIENTS.items():
        sample = make()
        inner, wanted = getattr(made, "solve", made), getattr(sample, "solve", sample)
        if (type(made), type(inner)) == (type(sample), type(wanted)):
            values = {key: getattr(inner, key) for key in parameters(make)}
            given = {
                k: v for k, v in values.items() if not isinstance(v, Deferred | Learned | None)
            }
            return {"name": name, **given}
    return None
