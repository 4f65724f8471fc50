"""Strict JSON: a number that is not finite is written as null and read as NaN."""

import json
import math
from typing import Any


def dumps(value: Any, indent: int | None = None) -> str:
    """Serialize `value` as strict JSON."""
    return json.dumps(replace_nonfinite(value), indent=indent, allow_nan=False)


def restore_nan(value: Any) -> Any:
    """Restore numbers, with NaN for null."""
    if isinstance(value, dict):
        return {key: restore_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [restore_nan(inner) for inner in value]
    return math.nan if value is None else value


def replace_nonfinite(value: Any) -> Any:
    """Replace every number that is not finite by None."""
    if isinstance(value, dict):
        return {key: replace_nonfinite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
