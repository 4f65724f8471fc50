"""Fixed-point sums modulo 2^64, with the same bits in numpy and in compiled programs.

A number s with |s| <= limit becomes the integer q = round(2^b s), where limit is a power of two and
2^b limit = 2^61; a weight w in [0, 1) becomes W = round(2^32 w). The change of receiver i is

    c_i = 2^-b sum_j (floor(W_ij q_j / 2^32) - floor(W_ij q_i / 2^32))

Both sums are at most 2^61 in size, since weights sum to at most 1: nothing overflows. Integers add
up exactly, in any order, so that pairwise masks cancel; equal numbers have no change; and the
changes of all agents sum to 0 before they are rounded to floats. The error against exact arithmetic
is at most sum_j ((w_ij + 1) 2^-b + 2^-33 |s_j - s_i|), and then the rounding of one float. A number
above the limit raises here, and becomes NaN in compiled programs.

Compiled programs have no 64-bit integers by default: there an integer is a pair of 32-bit words.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

SUM_BITS = 61  # of the largest integer
WEIGHT_BITS = 32
LOW = 0xFFFFFFFF
Words = NDArray[np.uint64]  # integers modulo 2^64, in two's complement


class LimitExceeded(FloatingPointError):
    """Error: a number is not finite, or larger than the fixed-point format can represent."""


class Pair(NamedTuple):
    """64-bit integers in two's complement, as 32-bit words."""

    high: jax.Array
    low: jax.Array


def fraction_bits(limit: float) -> int:
    """Return b, the number of binary digits after the point."""
    return SUM_BITS - round(math.log2(limit))


def integer_weight(weight: Any) -> Any:
    """Return W of a weight, or of an array of weights."""
    return np.minimum(np.rint(np.asarray(weight) * 2.0**WEIGHT_BITS), LOW).astype(np.uint64)


def to_words(array: NDArray[Any], limit: float) -> Words:
    """Return q of an array; raises `LimitExceeded`."""
    largest = float(max(array.max(), -array.min())) if array.size else 0.0
    if not largest <= limit:  # also if it is NaN
        raise LimitExceeded(
            f"a number of size {largest:.3g}, above the limit of masked sums, {limit:.7g}"
        )
    scaled = np.multiply(array, 2.0 ** fraction_bits(limit), dtype=np.float64)
    return np.rint(scaled, out=scaled).astype(np.int64).view(np.uint64)


def multiply(words: Words, weight: np.uint64) -> Words:
    """Return floor(W q / 2^32)."""
    high = (words.view(np.int64) >> WEIGHT_BITS).view(np.uint64)
    low = words & np.uint64(LOW)
    high *= weight
    low *= weight
    low >>= np.uint64(WEIGHT_BITS)
    high += low
    return high


def from_words(words: Words, limit: float, dtype: Any) -> NDArray[Any]:
    """Return the numbers of integers, each rounded once to `dtype` (16 bits: by way of 32)."""
    work = np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)
    value = words.view(np.int64).astype(work)
    value *= work.type(2.0 ** -fraction_bits(limit))
    return value.astype(dtype, copy=False)


def to_pair(leaf: jax.Array, limit: float) -> tuple[Pair, jax.Array]:
    """Return q of an array, and where a number is above the limit (q is 0 there)."""
    work = jnp.float64 if leaf.dtype == jnp.float64 else jnp.float32
    size = jnp.abs(leaf.astype(work))
    is_over = ~(size <= limit)
    size = jnp.rint(jnp.where(is_over, 0, size) * work(2.0 ** fraction_bits(limit)))
    high = jnp.floor(size * work(2.0**-32))
    low = size - high * work(2.0**32)
    pair = Pair(high.astype(jnp.uint32), low.astype(jnp.uint32))
    return _choose(leaf < 0, negate(pair), pair), is_over


def from_pair(pair: Pair, limit: float, dtype: Any) -> jax.Array:
    """Return the numbers of integers, with the bits of `from_words`."""
    is_negative = (pair.high >> 31) == 1
    size = _choose(is_negative, negate(pair), pair)
    if dtype == jnp.float64:
        value = size.high.astype(dtype) * 2.0**32 + size.low.astype(dtype)
        value = value * 2.0 ** -fraction_bits(limit)
    else:
        value = _round_to_float32(size) * jnp.float32(2.0 ** -fraction_bits(limit))
    return jnp.where(is_negative, -value, value).astype(dtype)


def _round_to_float32(size: Pair) -> jax.Array:
    """Return integers of no sign as float32, rounded once.

    The 32 leading bits have the same rounding as all bits, if the last one is set whenever a bit
    after it is.
    """
    shift = jnp.minimum(jax.lax.clz(size.high), 31)
    rest = (size.low >> 1) >> (31 - shift)
    is_inexact = (size.low << shift) != 0
    leading = (size.high << shift) | rest | is_inexact.astype(jnp.uint32)
    power = jax.lax.bitcast_convert_type((32 - shift + 127) << 23, jnp.float32)
    scaled = leading.astype(jnp.float32) * power
    return jnp.where(size.high == 0, size.low.astype(jnp.float32), scaled)


def add(a: Pair, b: Pair) -> Pair:
    """Return a + b."""
    low = a.low + b.low
    return Pair(a.high + b.high + (low < b.low).astype(jnp.uint32), low)


def negate(a: Pair) -> Pair:
    """Return -a."""
    return add(Pair(~a.high, ~a.low), Pair(jnp.zeros_like(a.high), jnp.ones_like(a.low)))


def multiply_pair(pair: Pair, weight: jax.Array) -> Pair:
    """Return floor(W q / 2^32)."""
    carried = jnp.where((pair.high >> 31) == 1, weight, 0)  # the high word has a sign
    product = Pair(_high_product(pair.high, weight) - carried, pair.high * weight)
    low = _high_product(pair.low, weight)
    return add(product, Pair(jnp.zeros_like(low), low))


def _high_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the upper 32 bits of the product of two words."""
    a1, a0, b1, b0 = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    middle = a1 * b0 + ((a0 * b0) >> 16)
    rest = a0 * b1 + (middle & 0xFFFF)
    return a1 * b1 + (middle >> 16) + (rest >> 16)


def _choose(condition: jax.Array, a: Pair, b: Pair) -> Pair:
    choose = lambda x, y: jnp.where(condition, x, y)
    return Pair(choose(a.high, b.high), choose(a.low, b.low))
