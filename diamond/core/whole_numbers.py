"""Whole numbers, looked at where they are taken: a fraction of a round never comes."""

import operator
from typing import Any


def whole(what: str, value: Any, least: int | None = None) -> int:
    """`value` as an int; raises ValueError in one sentence if it is none, or below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{what} = {value!r} must be a whole number")
    if least is not None and number < least:
        raise ValueError(f"{what} = {value!r} must be a whole number, {least} or more")
    return number
