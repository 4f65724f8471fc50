"""Whole numbers are whole wherever they are taken, and what is no algorithm is not run as one."""

import numpy as np
import pytest
from helpers import quad, ring
from hypothesis import given
from hypothesis import strategies as st
from tiny_experiment import tiny

import diamond
from diamond import hypergradient as hg
from diamond.advice.recommendation import advise
from diamond.config.validation_errors import BadExperiment
from diamond.core.validation import as_int
from diamond.engine import site_rehearsal
from diamond.engine.many_runs import simulate_many, simulate_seeds

pytestmark = pytest.mark.quick

DSGD = diamond.dsgd(0.05, 0.2, 4, hg.exact())


def simulated(rounds=2, **options):
    return diamond.simulate(quad(), ring(4), DSGD, rounds, **options)


def rehearsed(rounds=2, **options):
    return site_rehearsal.rehearse([quad()] * 4, ring(4), DSGD, rounds, **options)


def compared(seeds):
    return diamond.compare(quad(), ring(4), {"a": DSGD}, rounds=2, seeds=seeds)


TAKERS = {
    "rounds": lambda n: simulated(rounds=n),
    "every": lambda n: simulated(every=n),
    "seed": lambda n: simulated(seed=n),
    "batch": lambda n: diamond.simulate(quad(), ring(4), diamond.dsgd(0.1, 0.1, n), 2),
    "many: rounds": lambda n: simulate_many(quad(), ring(4), [(DSGD, 0)], n),
    "many: seed": lambda n: simulate_many(quad(), ring(4), [(DSGD, n)], 2),
    "together: seed": lambda n: simulate_seeds([n], quad(), ring(4), DSGD, 2),
    "compare: seeds": lambda n: compared(n),
    "compare: seed": lambda n: compared([n]),
    "rehearse: rounds": lambda n: rehearsed(rounds=n),
    "rehearse: seed": lambda n: rehearsed(seed=n),
    "advise: pilot": lambda n: advise(quad(), ring(4), pilot=n),
    "terms": lambda n: hg.neumann(n),
    "hessian_free: terms": lambda n: hg.hessian_free(n),
    "unrolled: steps": lambda n: hg.unrolled(n),
    "conjugate_gradient: steps": lambda n: hg.conjugate_gradient(n),
    "period": lambda n: diamond.svr_interact(period=n),
    "quadratic: agents": lambda n: diamond.gallery.quadratic(agents=n),
    "quadratic: rows": lambda n: diamond.gallery.quadratic(rows=n),
    "partition: agents": lambda n: diamond.data.partition.iid(10, n, 0),
    "partition: seed": lambda n: diamond.data.partition.iid(10, 2, n),
    "partition: shards": lambda n: diamond.data.partition.by_label([0, 1] * 5, 2, 0, n),
}


@pytest.mark.parametrize("who", TAKERS)
@pytest.mark.parametrize("value", [10.5, 3.0, True, "3"])
def test_every_taker_refuses_what_is_not_whole(who, value):
    name = who.split(": ")[-1]
    with pytest.raises(ValueError, match=f"{name} = {value!r} must be a whole number"):
        TAKERS[who](value)


@given(st.one_of(st.integers(-5, 5), st.integers(-5, 5).map(np.int32), st.floats(), st.booleans()))
def test_whole_numbers_pass_and_nothing_else(value):
    if isinstance(value, float | bool):
        with pytest.raises(ValueError, match="must be a whole number"):
            as_int("n", value)
    else:
        assert as_int("n", value) == value and type(as_int("n", value)) is int
        if value < 2:
            with pytest.raises(ValueError, match="whole number, 2 or more"):
                as_int("n", value, 2)


def test_an_algorithm_is_what_its_function_returns():
    problem, network = quad(), ring(4)
    for wrong in ("diamond", diamond.diamond):
        with pytest.raises(TypeError, match=r"as in diamond\.diamond\(\), with the brackets"):
            diamond.simulate(problem, network, wrong, 2)
    with pytest.raises(TypeError, match=r"of type Run: give its \.problem"):
        diamond.simulate(diamond.simulate(problem, network, DSGD, 0), network, DSGD, 2)
    with pytest.raises(
        TypeError, match=r"of type str: give one such as diamond\.network\.ring\(4\)"
    ):
        diamond.simulate(problem, "ring:4", DSGD, 2)


@pytest.mark.parametrize("batch", [0, -3])
def test_a_batch_of_none_is_a_mistake_of_the_file(batch):
    with pytest.raises(BadExperiment, match=rf"algorithm.batch: batch = {batch} must be a whole"):
        tiny(algorithm={"name": "dsgd", "batch": batch})
