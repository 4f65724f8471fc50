"""Validation of integer arguments."""

import operator
from typing import Any


def as_int(what: str, value: Any, least: int | None = None) -> int:
    """Return `value` as an int; raise ValueError if it is not an integer or below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{what} = {value!r} must be a whole number")
    if least is not None and number < least:
        raise ValueError(f"{what} = {value!r} must be a whole number, {least} or more")
    return number
