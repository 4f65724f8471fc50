"""Mistakes in an experiment: all are reported at once, each with its place and a remedy."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from ..core.suggestions import did_you_mean

T = TypeVar("T")


class Mistake(NamedTuple):
    """One mistake: its key, and what to do."""

    key: str
    said: str

    def __str__(self) -> str:
        return f"{self.key}: {self.said}" if self.key else self.said


class BadExperiment(ValueError):
    """Experiment that cannot be run; `mistakes` lists all mistakes."""

    def __init__(self, source: str, mistakes: Iterable[Mistake]):
        self.source, self.mistakes = source, list(mistakes)
        super().__init__("\n".join([f"{source}:", *(f"  {m}" for m in self.mistakes)]))


def wrong(said: str, *place: str | int, value: Any = None) -> ValidationError:
    """Make an error at `place` within the component being read, for pydantic to collect."""
    return several([(place, said, value)])


def several(found: Iterable[tuple[tuple[str | int, ...], str, Any]]) -> ValidationError:
    """Make an error of several mistakes (place, words, value) within the component being read."""
    lines = [
        InitErrorDetails(
            type=PydanticCustomError("mistake", "{said}", {"said": said}), loc=place, input=value
        )
        for place, said, value in found
    ]
    return ValidationError.from_exception_data("experiment", lines)


def gather(*readers: Callable[[], Any]) -> list[Any]:
    """Call all readers; if any finds mistakes, raise those of all, each once."""
    results: list[Any] = []
    found: list[tuple[tuple[str | int, ...], str, Any]] = []
    for reader in readers:
        try:
            results.append(reader())
        except ValidationError as error:
            new = [(e["loc"], e["ctx"]["said"], e["input"]) for e in error.errors()]
            known = [(place, said) for place, said, _ in found]
            found += [one for one in new if one[:2] not in known]
    if found:
        raise several(found)
    return results


def within(key: str | int, reader: Callable[[], T]) -> T:
    """Call `reader`; its mistakes are placed below `key`."""
    try:
        return reader()
    except ValidationError as error:
        found = [((key, *e["loc"]), e["ctx"]["said"], e["input"]) for e in error.errors()]
        raise several(found) from None


def mistakes_of(
    error: ValidationError, raw: Mapping[str, Any], known: Collection[str]
) -> list[Mistake]:
    """Translate pydantic's errors; `raw` is the input, `known` its valid top-level keys."""
    return [Mistake(_key(e["loc"], raw), _said(e, known)) for e in error.errors()]


def _key(place: tuple[str | int, ...], raw: Any) -> str:
    """Format a key as the user wrote it: a single table in place of a list has no index."""
    said = ""
    for step in place:
        if isinstance(step, int):
            if not isinstance(raw, list):
                continue
            said += f"[{step}]"
        else:
            said += f".{step}" if said else step
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            raw = None
    return said


def _said(error: Any, known: Collection[str]) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    last = error["loc"][-1] if error["loc"] else ""
    if kind == "mistake":
        return str(context["said"])
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"is not a known key; {did_you_mean(str(last), known)}"
    wanted = {
        "int_type": "a whole number",
        "float_type": "a number",
        "string_type": "text in quotes",
        "list_type": "a list",
        "greater_than_equal": f"at least {context.get('ge')}",
        "finite_number": "a finite number",
        "string_pattern_mismatch": "letters, digits, and _ . + - after the first",
        "too_short": "a list that is not empty",
    }.get(kind)
    if kind == "literal_error":
        choices = [word.strip("'") for word in re.split(", | or ", context["expected"])]
        return f"no {last} {given!r}; {did_you_mean(str(given), choices)}"
    return f"must be {wanted}, not {given!r}" if wanted else f"{error['msg']}, not {given!r}"
