"""Stopping rules: a run ends at a target, or when a budget is spent.

A stop is {name: value}: a measure ends the run when it is at most the value, a cost when it is at
least the value. For a measure that increases, write {"accuracy": ">= 0.9"}.
"""

import math
import re
from collections.abc import Collection, Mapping

from ..core.cost_counter import Cost
from ..core.suggestions import did_you_mean
from ..network.links.link_properties import Links

Stop = Mapping[str, float | str]
CALLS = ("gradients", "hvps", "jvps")  # summands of "calls"
COSTS = (*Cost._fields, "calls", "bytes", "seconds")
ON_LINKS = ("network_seconds", "joules")  # further costs, if the network has links
MEASURES = (
    *("metric", "upper_loss", "stationarity", "consensus", "lower_error"),
    *("definition1", "local_loss", "lower_loss", "lower_gradient", "value_gap"),
)
CONDITION = re.compile(r"\s*(?P<sign><=|>=)\s*(?P<value>\S+)\s*")


def check_stop(
    stop: Stop | None, metrics: Collection[str] = (), links: Links | None = None
) -> dict[str, float | str]:
    """Check the names and values of `stop`; `metrics` are the user's metrics.

    `links` are those of the network; without links, seconds and joules on them are unknown.
    """
    if not isinstance(stop, Mapping | None):
        raise TypeError(f'stop = {stop!r}: give a dict such as {{"metric": 0.001}}')
    known = (*MEASURES, *COSTS, *ON_LINKS, *metrics)
    for name, condition in (stop or {}).items():
        if name not in known:
            raise ValueError(f"stop: no measure or cost {name!r}; {did_you_mean(name, known)}")
        if name == "network_seconds" and links is None:
            raise ValueError(f"stop: {name} needs a network with links, as in with_links(rate=1e6)")
        if name == "joules" and (links is None or links.joules_per_bit is None):
            raise ValueError("stop: joules needs a network with links that have joules_per_bit")
        sign, value = _condition(name, condition)
        if name in (*COSTS, *ON_LINKS) and (sign, value > 0) != (">=", True):
            raise ValueError(f"stop: {name} = {condition!r}; a cost ends a run at a number above 0")
    return dict(stop or {})


def stop_reason(stop: Stop, entry: Mapping[str, float]) -> str:
    """Return why the run ends at this evaluation; "" if it continues."""
    for name, condition in stop.items():
        sign, value = _condition(name, condition)
        value_now = sum(entry[call] for call in CALLS) if name == "calls" else entry[name]
        if value_now <= value if sign == "<=" else value_now >= value:
            return f"stopped at round {entry['round']:.0f}: {name} {value_now:.4g} {sign} {value:g}"
    return ""


def without_budgets(stop: Stop) -> dict[str, float | str]:
    """Return `stop` without its budgets."""
    return {name: value for name, value in stop.items() if name not in (*COSTS, *ON_LINKS)}


def _condition(name: str, stated: float | str) -> tuple[str, float]:
    """Return the comparison sign and the number."""
    sign, text = ">=" if name in (*COSTS, *ON_LINKS) else "<=", stated
    if isinstance(stated, str) and (condition := CONDITION.fullmatch(stated)):
        sign, text = condition["sign"], condition["value"]
    try:
        value = math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f'stop: {name} = {stated!r}; give a finite number, or text as ">= 0.9"')
    return sign, value
