"""Strict JSON: a number that is not finite is written as null and read as NaN."""

import json
import math
from typing import Any


def dumps(value: Any, indent: int | None = None) -> str:
    """Serialize `value` as strict JSON."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def numbers(value: Any) -> Any:
    """Restore numbers, with NaN for null."""
    if isinstance(value, dict):
        return {key: numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [numbers(inner) for inner in value]
    return math.nan if value is None else value


def finite(value: Any) -> Any:
    """Replace every number that is not finite by None."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
