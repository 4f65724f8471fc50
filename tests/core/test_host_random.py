"""Draws on the host: the very bits of `jax.random`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond.core import host_random
from diamond.core.sampling import key


@pytest.mark.wide
@pytest.mark.parametrize("wide", [True, False])
def test_keys_and_numbers_are_those_of_jax(wide):
    counts = np.array([1, 7, 12, 1000, 2**20 + 3])
    with jax.enable_x64(wide):
        keys_of = lambda i: jax.random.split(jax.random.fold_in(key(7), i), 3)
        expected = jax.vmap(keys_of)(np.arange(5))
        words = host_random.split(host_random.fold_in(host_random.words(key(7)), np.arange(5)), 3)
        np.testing.assert_array_equal(np.stack(words, -1), jax.random.key_data(expected))
        single = lambda key, count: jax.random.randint(key, (), 0, count)
        rows = jax.vmap(jax.vmap(single, (0, None)))(expected, jnp.asarray(counts, jnp.int32))
        drawn = host_random.randint_below(words, counts[:, None])
        np.testing.assert_array_equal(drawn, rows)
        assert drawn.dtype == rows.dtype
