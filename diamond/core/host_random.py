"""`jax.random` on the host, bit for bit, for a few draws before a program is compiled."""

from typing import Any

import jax
import numpy as np

from .threefry import mixed

Words = tuple[np.ndarray, np.ndarray]  # two words of each key


def words(key: jax.Array) -> Words:
    """Return the two words of a key, or of several."""
    data = np.atleast_2d(np.asarray(jax.random.key_data(key)))
    return data[..., 0], data[..., 1]


def fold_in(key: Words, number: Any) -> Words:
    """Apply `jax.random.fold_in` to every key and number."""
    shape = np.broadcast_shapes(key[0].shape, np.shape(number))
    second = np.broadcast_to(np.asarray(number).astype(np.uint32), shape)
    found: Words = mixed.__wrapped__(  # type: ignore[attr-defined]
        key, np.zeros(shape, np.uint32), second
    )
    return found


def split(key: Words, count: int) -> Words:
    """Apply `jax.random.split` to every key: one axis more."""
    first, second = key
    return fold_in((first[..., None], second[..., None]), np.arange(count))


def below(key: Words, count: np.ndarray) -> np.ndarray:
    """Apply `jax.random.randint(key, (), 0, count)` to every key and count."""
    wide = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    kind: Any = np.uint64 if wide else np.uint32
    first, second = split(key, 2)
    high, low = fold_in((first, second), np.uint32(0))
    drawn = high.astype(kind) << kind(32) | low if wide else high ^ low
    span = np.asarray(count).astype(kind)
    power = np.full_like(span, 2 ** (32 if wide else 16)) % span
    offset = drawn[..., 0] % span * (power * power % span) + drawn[..., 1] % span
    return (offset % span).astype(np.int64 if wide else np.int32)
