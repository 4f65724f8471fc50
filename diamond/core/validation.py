"""Validation of integer arguments."""

import operator
from typing import Any


def as_int(name: str, value: Any, minimum: int | None = None) -> int:
    """Return `value` as an int; raise ValueError if it is not an integer or below `minimum`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{name} = {value!r} must be a whole number")
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} = {value!r} must be a whole number, {minimum} or more")
    return number
