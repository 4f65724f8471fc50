"""Threefry-2x32 with 20 rounds (Salmon et al., 2011), equal bit for bit to `jax.random`.

On a CPU, JAX runs Threefry as a loop of small operations with overhead; this code fuses with the
program that uses the bits.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Words = tuple[jax.Array, jax.Array]  # a key, or its output for a counter
ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)


@jax.jit
def hash_counters(key: Words, first: jax.Array, second: jax.Array) -> Words:
    """Return the 64 output bits of `key` for each 64-bit counter."""
    keys = *key, key[0] ^ key[1] ^ PARITY
    a, b = first + keys[0], second + keys[1]
    for step in range(5):
        for bits_rotated in ROTATIONS[step % 2]:
            a = a + b
            b = (b << np.uint32(bits_rotated) | b >> np.uint32(32 - bits_rotated)) ^ a
        a = a + keys[(step + 1) % 3]
        b = b + keys[(step + 2) % 3] + np.uint32(step + 1)
    return a, b


def words(key: jax.Array) -> Words:
    """Return the two words of a key of `jax.random`."""
    data = jax.random.key_data(key)
    return data[..., 0], data[..., 1]


def typed(key: Words) -> jax.Array:
    """Return two words as a key of `jax.random`."""
    return jax.random.wrap_key_data(jnp.stack(key, axis=-1), impl="threefry2x32")


def fold_in(key: Words, number: Any) -> Words:
    """Return the key of `number`, as `jax.random.fold_in`."""
    return hash_counters(key, np.uint32(0), jnp.asarray(number).astype(jnp.uint32))


def bits(key: Words, shape: tuple[int, ...]) -> jax.Array:
    """Return uniform 32-bit words, as `jax.random.bits`."""
    numbers = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    a, b = hash_counters(key, np.uint32(0), numbers)
    return a ^ b
