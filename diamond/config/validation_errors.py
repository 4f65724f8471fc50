"""Mistakes in an experiment: all are reported at once, each with its place and a remedy."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from ..core.suggestions import did_you_mean

T = TypeVar("T")


class Mistake(NamedTuple):
    """One mistake: its key, and what to do."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class BadExperiment(ValueError):
    """Experiment that cannot be run; `mistakes` lists all mistakes."""

    def __init__(self, source: str, mistakes: Iterable[Mistake]):
        self.source, self.mistakes = source, list(mistakes)
        super().__init__("\n".join([f"{source}:", *(f"  {m}" for m in self.mistakes)]))


@contextmanager
def value_errors_as_mistakes(source: str) -> Iterator[None]:
    """Raise a ValueError inside as a `BadExperiment` of `source`."""
    try:
        yield
    except BadExperiment:
        raise
    except ValueError as cause:
        raise BadExperiment(source, [Mistake("", str(cause))]) from None


def config_error(message: str, *place: str | int, value: Any = None) -> ValidationError:
    """Make an error at `place` within the component being read, for pydantic to collect."""
    return config_errors([(place, message, value)])


def config_errors(mistakes: Iterable[tuple[tuple[str | int, ...], str, Any]]) -> ValidationError:
    """Make an error of several mistakes (place, words, value) within the component being read."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError("mistake", "{message}", {"message": message}),
            loc=place,
            input=value,
        )
        for place, message, value in mistakes
    ]
    return ValidationError.from_exception_data("experiment", details)


def collect_errors(*readers: Callable[[], Any]) -> list[Any]:
    """Call all readers; if any finds mistakes, raise those of all, each once."""
    results: list[Any] = []
    mistakes: list[tuple[tuple[str | int, ...], str, Any]] = []
    for reader in readers:
        try:
            results.append(reader())
        except ValidationError as error:
            new_mistakes = [(e["loc"], e["ctx"]["message"], e["input"]) for e in error.errors()]
            seen = [(place, message) for place, message, _ in mistakes]
            mistakes += [mistake for mistake in new_mistakes if mistake[:2] not in seen]
    if mistakes:
        raise config_errors(mistakes)
    return results


def nest_errors(key: str | int, reader: Callable[[], T]) -> T:
    """Call `reader`; its mistakes are placed below `key`."""
    try:
        return reader()
    except ValidationError as error:
        mistakes = [((key, *e["loc"]), e["ctx"]["message"], e["input"]) for e in error.errors()]
        raise config_errors(mistakes) from None


def report_mistakes(source: str, reader: Callable[[], T]) -> T:
    """Call `reader`; raise its mistakes as a `BadExperiment` of `source`."""
    try:
        return reader()
    except ValidationError as error:
        raise BadExperiment(source, translate_errors(error, {})) from None


def translate_errors(
    error: ValidationError, raw: Mapping[str, Any], model: type[BaseModel] | None = None
) -> list[Mistake]:
    """Translate pydantic's errors in the input `raw` of `model`."""
    return [
        Mistake(_format_key(e["loc"], raw), _error_message(e, _known_keys(model, e["loc"])))
        for e in error.errors()
    ]


def _known_keys(model: type[BaseModel] | None, place: tuple[str | int, ...]) -> list[str]:
    """List the valid keys of the table that `place` lies in."""
    if model is None:
        return []
    if len(place) > 1 and place[0] in model.model_fields:
        annotation = model.model_fields[str(place[0])].annotation
        for part in (annotation, *get_args(annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                return _known_keys(part, place[1:])
    return list(model.model_fields)


def _format_key(place: tuple[str | int, ...], raw: Any) -> str:
    """Format a key as the user wrote it: a single table in place of a list has no index."""
    text = ""
    for step in place:
        if isinstance(step, int):
            if not isinstance(raw, list):
                continue
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            raw = None
    return text


def _error_message(error: Any, known: Collection[str]) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    last = error["loc"][-1] if error["loc"] else ""
    if kind == "mistake":
        return str(context["message"])
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"is not a known key; {did_you_mean(str(last), known)}"
    requirement = {
        "int_type": "a whole number",
        "float_type": "a number",
        "string_type": "text in quotes",
        "list_type": "a list",
        "greater_than_equal": f"at least {context.get('ge')}",
        "greater_than": f"greater than {context.get('gt', 0):g}",
        "less_than": f"less than {context.get('lt', 0):g}",
        "finite_number": "a finite number",
        "string_pattern_mismatch": "letters, digits, and _ . + - after the first",
        "too_short": "a list that is not empty",
    }.get(kind)
    if kind == "literal_error":
        choices = [word.strip("'") for word in re.split(", | or ", context["expected"])]
        return f"no {last} {value!r}; {did_you_mean(str(value), choices)}"
    return (
        f"must be {requirement}, not {value!r}" if requirement else f"{error['msg']}, not {value!r}"
    )
