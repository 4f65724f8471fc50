"""Files and descriptions with earlier names of algorithms and their options are still read."""

import pytest

import diamond
from diamond.config.components import read_algorithm
from diamond.records.run_inputs import check_same, describe

pytestmark = pytest.mark.quick

PARTS = {"directions": "carried", "x": "gt", "y": "gt", "batch": 4}
BEFORE = {  # of `ALGORITHM`, as described in a run folder written before
    "batch": "4",
    "class": "Loop",
    "directions.class": "Implicit",
    "directions.hypergradient.class": "Implicit",
    "directions.hypergradient.solve.class": "Dense",
    "directions.hypergradient.solve.links": "1",
    "estimator.class": "Plain",
    "estimator.full": "False",
    "x.class": "Variable",
    "alpha": "0.1",
    "x.move.class": "Gossip",
    "x.move.order": "atc",
    "x.move.relax": "None",
    "x.move.prox": "None",
    "y.class": "Variable",
    "beta": "0.2",
    "y.move.class": "Local",
    "y.move.prox": "None",
    "z": "None",
    "plan": "y x",
    "inner": "1",
    "solves.0": "personal",
    "solves.1": "none",
}
ALGORITHM = diamond.compose(
    x="gossip",
    update_order="y x",
    alpha=0.1,
    beta=0.2,
    batch=4,
    hypergradient=diamond.hypergradient.exact(),
)


def test_a_file_that_says_method_and_plan_makes_the_same_algorithm():
    earlier = read_algorithm({"name": "method", "plan": "y z x", "solves": "common", **PARTS})
    options = {"update_order": "y z x", "lower_level": "common", **PARTS}
    current = read_algorithm({"name": "compose", **options})
    assert earlier == current and earlier.build() == current.build()
    assert earlier.name == "compose" and earlier.options["update_order"] == "y z x"
    assert earlier.label == "method"  # its runs keep their folder


def test_a_run_described_by_earlier_names_can_be_resumed():
    network = diamond.network.ring(3)
    before = {"network": describe(network, ALGORITHM)["network"], "algorithm": BEFORE}
    check_same(before, network, ALGORITHM)
    before["algorithm"] = BEFORE | {"plan": "x y"}
    with pytest.raises(ValueError, match="update_order = x y, not y x"):
        check_same(before, network, ALGORITHM)
