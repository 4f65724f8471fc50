"""`seconds` of a run are those of its rounds: neither compiling nor measuring is part of them."""

from contextlib import contextmanager
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import ESTIMATORS, quad, ring

import diamond
from diamond.engine import driver, lanes, single_driver
from diamond.engine.many_runs import simulate_many
from diamond.engine.round_program import WORK
from diamond.hardware.device_memory import MemoryBoundedProgram

COMPILING = "/jax/core/compile/"


@contextmanager
def clock_of_the_compiler(monkeypatch):
    """A clock for runs that shows how often JAX has traced or compiled something so far."""
    jax.clear_caches()
    count = [0.0]

    def listen(event, duration, **details):
        count[0] += event.startswith(COMPILING)

    clock = SimpleNamespace(perf_counter=lambda: count[0])
    for module in (driver, lanes, single_driver):
        monkeypatch.setattr(module, "time", clock)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        with without_optimizations():
            yield clock
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # that the run goes back
def test_a_program_that_is_compiled_on_the_way_is_not_part_of_seconds(monkeypatch):
    """Smaller steps after going back are another program."""
    wild = diamond.gt_sgd(50.0, 0.2, 4, ESTIMATORS["neumann"])
    inputs = quad(), ring(4), wild
    with clock_of_the_compiler(monkeypatch) as clock:
        run = diamond.simulate(*inputs, 110, every=50, on_divergence="shrink")
        assert run.resolved["shrunk"] < 1  # it went back
        assert clock.perf_counter() > 10  # JAX reports its work
    np.testing.assert_array_equal(run.history["seconds"], 0)
    assert run.compile_seconds > 0


@pytest.mark.wide
def test_nor_is_the_first_execution_of_draws_for_links(monkeypatch):
    """The first round that draws for links takes longer, and no event of JAX reports it."""
    calls, real = [], MemoryBoundedProgram.__call__

    def listen(self, *inputs, **named):
        if self.work == WORK:
            calls.append(int(inputs[-1]))  # the round to stop at
        return real(self, *inputs, **named)

    monkeypatch.setattr(MemoryBoundedProgram, "__call__", listen)
    algorithm = diamond.gt_sgd(0.05, 0.2, 4, ESTIMATORS["neumann"])
    lossy = ring(4).through(diamond.network.channels.drops(0.1))
    with without_optimizations():
        for network, before in ((ring(4), 0), (lossy, 1)):
            diamond.simulate(quad(), network, algorithm, 4, every=2)
            inputs = quad(), network, [(algorithm, 0)], 4, [2, 4]
            simulate_many(*inputs, measure="loss")
            simulate_many(*inputs, batched=True)
            assert calls == [before, 2, 4] * 3
            calls.clear()


@pytest.mark.wide
def test_nor_is_it_where_several_runs_share_programs(monkeypatch):
    runs = [(diamond.gt_sgd(0.05, 0.2, 4, ESTIMATORS["neumann"]), seed) for seed in (0, 1)]
    inputs = quad(), ring(4), runs, 30, [5, 30]
    with clock_of_the_compiler(monkeypatch):
        kinds = {"measure": "loss"}, {"batched": False}, {"batched": True}
        outcomes = [outcome for options in kinds for outcome in simulate_many(*inputs, **options)]
    assert [outcome.history["seconds"].tolist() for outcome in outcomes] == [[0, 0, 0]] * 6
