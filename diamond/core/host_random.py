"""`jax.random` on the host, bit for bit, for a few draws before a program is compiled."""

from typing import Any

import jax
import numpy as np

from .threefry import hash_counters

Words = tuple[np.ndarray, np.ndarray]  # two words of each key


def words(key: jax.Array) -> Words:
    """Return the two words of a key, or of several."""
    data = np.atleast_2d(np.asarray(jax.random.key_data(key)))
    return data[..., 0], data[..., 1]


def fold_in(key: Words, number: Any) -> Words:
    """Apply `jax.random.fold_in` to every key and number."""
    shape = np.broadcast_shapes(key[0].shape, np.shape(number))
    counter = np.broadcast_to(np.asarray(number).astype(np.uint32), shape)
    words: Words = hash_counters.__wrapped__(  # type: ignore[attr-defined]
        key, np.zeros(shape, np.uint32), counter
    )
    return words


def split(key: Words, count: int) -> Words:
    """Apply `jax.random.split` to every key: one axis more."""
    first, second = key
    return fold_in((first[..., None], second[..., None]), np.arange(count))


def randint_below(key: Words, count: np.ndarray) -> np.ndarray:
    """Apply `jax.random.randint(key, (), 0, count)` to every key and count."""
    is_64_bit = jax.config.jax_enable_x64  # type: ignore[attr-defined, unused-ignore]
    dtype: Any = np.uint64 if is_64_bit else np.uint32
    first, second = split(key, 2)
    high, low = fold_in((first, second), np.uint32(0))
    drawn = high.astype(dtype) << dtype(32) | low if is_64_bit else high ^ low
    span = np.asarray(count).astype(dtype)
    power = np.full_like(span, 2 ** (32 if is_64_bit else 16)) % span
    offset = drawn[..., 0] % span * (power * power % span) + drawn[..., 1] % span
    return (offset % span).astype(np.int64 if is_64_bit else np.int32)
