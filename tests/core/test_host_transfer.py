"""Arrays from the host: as `jnp.asarray` makes them, and no program for it."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond.core import host_transfer, pytrees, sampling
from diamond.core.gc_control import gc_disabled


def test_nothing_is_compiled(capfd):
    with jax.log_compiles():
        array = host_transfer.to_device(np.arange(7.0))
        spread = host_transfer.broadcast_to_agents({"a": array, "b": np.arange(3)}, 5)
        sampling.key(11)
        host_transfer.to_host(spread)
    assert "XLA compilation" not in capfd.readouterr().err
    expected = jnp.asarray(np.arange(7.0))
    assert array.dtype == expected.dtype and not array.weak_type
    np.testing.assert_array_equal(spread["a"], jnp.broadcast_to(expected, (5, 7)))
    assert spread["b"].shape == (5, 3) and spread["b"].dtype == jnp.arange(3).dtype


def test_what_is_traced_is_spread_as_well():
    array = jax.jit(lambda a: host_transfer.broadcast_to_agents(a, 4))(jnp.arange(2.0))
    np.testing.assert_array_equal(array, np.tile(np.arange(2.0), (4, 1)))


def test_a_loop_that_begins_mapped_is_mapped_once():
    """The value is what it was, whatever it is mapped with; and its body is mapped but once."""
    mapped = []

    @jax.custom_batching.custom_vmap
    def plus(a):
        return a + 1

    @plus.def_vmap
    def _(size, batched, a):
        mapped.append(batched)
        return a + 1, True

    def count(a, begin):
        return jax.lax.fori_loop(0, 3, lambda _, k: plus(k + a), begin(jnp.zeros_like(a), a))

    plain = lambda value, a: value
    bad = jnp.array([1.0, 5.0])
    late = jax.vmap(lambda a: count(a, plain))(bad)
    times, _ = len(mapped), mapped.clear()
    soon = jax.vmap(lambda a: count(a, pytrees.mapped_with))(bad)
    np.testing.assert_array_equal(late, soon)
    assert len(mapped) < times
    mapped = pytrees.mapped_with({"a": jnp.ones(3), "k": jnp.int32(4)}, jnp.array(np.nan))
    np.testing.assert_array_equal(mapped["a"], np.ones(3))
    assert mapped["k"] == 4 and mapped["k"].dtype == jnp.int32


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(on):
    before = gc.isenabled()
    try:
        gc.enable() if on else gc.disable()
        with pytest.raises(KeyError), gc_disabled():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == on
    finally:
        gc.enable() if before else gc.disable()
