"""Where a run stands, at the end of a round."""

from typing import Any, NamedTuple

import numpy as np

from ..numbers.open_numbers import Found


class Snapshot(NamedTuple):
    """Where a run stands: what the rounds to come depend on, and what was measured until then."""

    arrays: dict[str, Any]  # state and counters of all agents, the round among them, by name
    found: dict[str, Found]  # the numbers that the run had to find, by name
    seconds: float  # of the rounds made
    entries: list[dict[str, float]]  # the history, one entry an evaluation
    own: list[dict[str, np.ndarray]]  # what each agent has of its own, one entry an evaluation
