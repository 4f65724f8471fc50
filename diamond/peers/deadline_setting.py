"""Deadline of an exchange as a federation states it: seconds, or multiples of the median."""

import math
import re
from typing import NamedTuple


class Deadline(NamedTuple):
    """Time limit of an exchange: in seconds, or in multiples of the median duration."""

    limit: float
    is_relative: bool = False

    def __str__(self) -> str:
        return f"{self.limit:g} {'median' if self.is_relative else 's'}"


def parse_deadline(value: float | str | None) -> Deadline | None:
    """Parse a number of seconds, or text such as "1.5 median"."""
    if value is None:
        return None
    match = re.fullmatch(r"\s*([0-9.]+)\s*median\s*", value) if isinstance(value, str) else None
    try:
        limit = float(match.group(1)) if match else float(value)
    except ValueError:
        limit = math.nan
    if isinstance(value, bool) or not 0 < limit < math.inf or (match and limit < 1):
        raise ValueError(
            f'deadline = {value!r} is neither a number of seconds nor text such as "1.5 median", '
            f"at least 1"
        )
    return Deadline(limit, match is not None)


def describe_policy(missing: str, deadline: float | str | None, signed: bool = False) -> str:
    """Describe how absent, late and lying neighbours are handled, for the digest of the run."""
    policy = missing if deadline is None else f"{missing}, {parse_deadline(deadline)}"
    return f"{policy}, signed" if signed else policy
