"""Threefry written out: bit for bit what `jax.random` draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond.core import sampling, threefry

SEEDS = (0, 7, -5, 2**31 + 3)


@pytest.mark.quick
def test_the_very_bits_of_jax():
    theirs = lambda key, number: (
        jax.random.key_data(jax.random.fold_in(key, number)),
        jax.random.bits(jax.random.fold_in(key, number), (3, 4), jnp.uint32),
        jax.random.bits(jax.random.fold_in(key, number), (), jnp.uint32),
    )

    def ours(key, number):
        words = threefry.fold_in(threefry.words(key), number)
        return jnp.stack(words), threefry.bits(words, (3, 4)), threefry.bits(words, ())

    keys = jnp.stack([jax.random.key(seed, impl="threefry2x32") for seed in SEEDS])
    numbers = jnp.array([0, 1, 0x80000000, 0xFFFFFFFF], jnp.uint32)
    both = jax.jit(lambda: (jax.vmap(theirs)(keys, numbers), jax.vmap(ours)(keys, numbers)))
    for expected, result in zip(*both()):
        np.testing.assert_array_equal(expected, result)


def test_words_and_keys_are_the_same_thing():
    key = jax.random.key(3, impl="threefry2x32")
    again = threefry.typed(threefry.words(key))
    np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(again))


@pytest.mark.parametrize("wide", [False, True])
def test_the_key_of_a_seed_is_that_of_jax(wide):
    with jax.enable_x64(wide):
        for seed in (*SEEDS, 2**40 + 9, -(2**35)):
            expected = jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))
            np.testing.assert_array_equal(jax.random.key_data(sampling.key(seed)), expected)
        with pytest.raises(OverflowError):
            sampling.key(2**64)
