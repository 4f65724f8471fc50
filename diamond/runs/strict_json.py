"""JSON that every reader takes: a number that is not finite is written as null, and read as NaN."""

import json
import math
from typing import Any


def dumps(value: Any, indent: int | None = None) -> str:
    """`value` as strict JSON."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def numbers(value: Any) -> Any:
    """What was written of numbers, with NaN for null."""
    if isinstance(value, dict):
        return {key: numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [numbers(inner) for inner in value]
    return math.nan if value is None else value


def finite(value: Any) -> Any:
    """The same value with None for every number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
