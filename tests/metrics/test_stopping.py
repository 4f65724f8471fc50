"""When a run ends before its last round: by any of its rules, whichever is reached first."""

import math

import pytest

from diamond.metrics.stopping import check_stop, stop_reason

pytestmark = pytest.mark.quick
ENTRY = {"round": 40, "metric": 0.5, "upper_loss": 2.0, "accuracy": 0.8, "samples": 1e3}


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_every_rule_ends_a_run_wherever_it_stands(position):
    rules = [("metric", 0.5), ("samples", 1e3), ("accuracy", ">= 0.8"), ("upper_loss", "<= 2")]
    never = {"metric": 0.1, "samples": 1e9, "accuracy": ">= 0.9", "upper_loss": 1.0}
    name, value = rules[position]
    assert stop_reason(never, ENTRY) == ""
    stop = check_stop(never | {name: value}, ["accuracy"])
    assert stop_reason(stop, ENTRY).startswith(f"stopped at round 40: {name} {ENTRY[name]:.4g} ")
    shifted = {name: stop[name]} | stop  # first, too
    assert stop_reason(shifted, ENTRY) == stop_reason(stop, ENTRY)


def test_the_first_rule_that_is_reached_is_named():
    stop = {"upper_loss": 1.0, "samples": 500, "metric": 1.0}
    assert stop_reason(stop, ENTRY) == "stopped at round 40: samples 1000 >= 500"


def test_what_is_not_a_number_ends_nothing():
    nonfinite = ENTRY | {"metric": math.nan, "accuracy": math.nan}
    assert stop_reason({"metric": 1e9, "accuracy": ">= 0"}, nonfinite) == ""
    assert stop_reason({"metric": 1e9, "samples": 10}, nonfinite).endswith("samples 1000 >= 10")
