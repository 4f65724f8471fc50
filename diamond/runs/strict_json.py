"""JSON that every reader takes: a number that is not finite is written as null, and read as NaN."""

import json
import math
from typing import Any


def dumps(value: Any, indent: int | None = None) -> str:
    """`value` as strict JSON."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def numbers(value: Any) -> Any:
    """What was written of numbers, with NaN for null."""
    if isinstance(value, dict):
        return {key: numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [numbers(inner) for inner in value]
    return math.nan if value is None else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
