"""Codecs for arrays: `pack` encodes an array in fewer bytes, `unpack` decodes it.

`key` is known to both ends. `squeeze` turns packed arrays into the transmitted bytes, `expand`
inverts that; both only move bits, so a simulation skips them.
"""

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diamond.core import pytrees

STATIC = {"static": True}


class Codec(ABC):
    """Codec that packs one array into a smaller one."""

    gamma: float = 1.0  # stable damping factor of the change
    terms: int | None = None  # numbers that are sent, if given as a count

    @property
    def name(self) -> str:
        """Short name for a line of text."""
        kind = type(self).__name__.lower()
        parameters = [f"{v:g}" if isinstance(v, float) else str(v) for v in vars(self).values()]
        return f"{kind}({parameters[0]})" if parameters and parameters[0] != "None" else kind

    @abstractmethod
    def pack(self, key: jax.Array, a: jax.Array) -> Any: ...

    @abstractmethod
    def unpack(self, key: jax.Array, wire: Any, like: Any) -> jax.Array: ...

    def squeeze(self, wire: Any) -> Any:
        return wire

    def expand(self, wire: Any, like: Any) -> Any:
        return wire


class ScaledNumbers(NamedTuple):
    scale: jax.Array | None
    numbers: jax.Array


@pytrees.pytree
class Rounded(Codec):
    """float16 or bfloat16; float16, whose range is small, in units of the largest number."""

    kind: str = field(metadata=STATIC)

    def pack(self, key: jax.Array, a: jax.Array) -> ScaledNumbers:
        if self.kind == "bfloat16":
            return ScaledNumbers(None, a.astype(self.kind))
        largest = jnp.max(jnp.abs(a), initial=0)
        scale = jnp.where(largest > 0, largest, 1).astype(a.dtype)
        return ScaledNumbers(scale, (a / scale).astype(self.kind))

    def unpack(self, key: jax.Array, wire: ScaledNumbers, like: Any) -> jax.Array:
        numbers = wire.numbers.astype(like.dtype)
        return numbers if wire.scale is None else wire.scale * numbers


class Sparse(NamedTuple):
    values: jax.Array
    places: jax.Array | None


@pytrees.pytree
class SparseCodec(Codec):
    """A `share` of the numbers, or `terms` numbers."""

    share: float | None = field(metadata=STATIC)
    terms: int | None = field(metadata=STATIC)

    def count(self, size: int) -> int:
        count = round((self.share or 0) * size) if self.terms is None else self.terms
        return min(size, max(1, count))

    def unpack(self, key: jax.Array, wire: Sparse, like: Any) -> jax.Array:
        flat = jnp.zeros(like.size, like.dtype)
        return flat.at[wire.places].set(wire.values).reshape(like.shape)


@pytrees.pytree
class Top(SparseCodec):
    """The numbers of largest magnitude, each with its index."""

    @property
    def gamma(self) -> float:  # type: ignore[override]
        return 0.4 if self.share is None else min(1.0, 0.8 * self.share**0.5)

    def pack(self, key: jax.Array, a: jax.Array) -> Sparse:
        flat = a.reshape(-1)
        places = jax.lax.top_k(jnp.abs(flat), self.count(flat.size))[1]
        kind = jnp.uint16 if flat.size <= 2**16 else jnp.uint32
        return Sparse(flat[places], places.astype(kind))


@pytrees.pytree
class Random(SparseCodec):
    """Numbers at random indices; both ends derive the indices from the key."""

    @property
    def gamma(self) -> float:  # type: ignore[override]
        return 0.05 if self.share is None else min(1.0, self.share / 4)

    def places(self, key: jax.Array, size: int) -> jax.Array:
        return jax.random.permutation(key, size)[: self.count(size)]

    def pack(self, key: jax.Array, a: jax.Array) -> Sparse:
        return Sparse(a.reshape(-1)[self.places(key, a.size)], None)

    def unpack(self, key: jax.Array, wire: Sparse, like: Any) -> jax.Array:
        return super().unpack(key, wire._replace(places=self.places(key, like.size)), like)


class Levels(NamedTuple):
    scale: jax.Array
    levels: jax.Array  # int8, or `bits` bits per number packed in bytes


@pytrees.pytree
class Quantized(Codec):
    """`bits` bits per number: a level from -L to L, L = 2^(bits - 1) - 1, rounded at random.

    levels = floor(L |a| / max |a| + U) sign(a). The scale sent along makes the result closest to a
    (`fitted`: never further than 0 is), or unbiased.
    """

    bits: int = field(metadata=STATIC)
    fitted: bool = field(default=True, metadata=STATIC)

    @property
    def gamma(self) -> float:  # type: ignore[override]
        return {2: 0.2, 3: 0.5}.get(self.bits, 0.8)

    @property
    def max_level(self) -> int:
        return 2 ** (self.bits - 1) - 1

    def pack(self, key: jax.Array, a: jax.Array) -> Levels:
        largest = jnp.max(jnp.abs(a), initial=0)
        scale = jnp.where(largest > 0, largest, 1) / self.max_level
        ratio = jnp.abs(a) / scale
        up = jax.random.uniform(key, a.shape, jnp.float32)
        levels = jnp.minimum(jnp.floor(ratio + up.astype(a.dtype)), self.max_level) * jnp.sign(a)
        if self.fitted:  # the factor c that minimizes ||a - c levels||
            square = jnp.sum(levels * levels)
            scale = jnp.sum(a * levels) / jnp.where(square > 0, square, 1)
        return Levels(scale.astype(a.dtype), levels.astype(jnp.int8))

    def unpack(self, key: jax.Array, wire: Levels, like: Any) -> jax.Array:
        return wire.scale * wire.levels.astype(like.dtype)

    def squeeze(self, wire: Levels) -> Levels:
        unsigned = (wire.levels.reshape(-1).astype(jnp.int16) + self.max_level).astype(jnp.uint8)
        bits_of_levels = (unsigned[:, None] >> jnp.arange(self.bits, dtype=jnp.uint8)) & 1
        return Levels(wire.scale, jnp.packbits(bits_of_levels.reshape(-1)))

    def expand(self, wire: Levels, like: Any) -> Levels:
        bits_of_levels = jnp.unpackbits(wire.levels, count=like.size * self.bits)
        places = jnp.left_shift(1, jnp.arange(self.bits, dtype=jnp.int16)).astype(jnp.int16)
        levels = bits_of_levels.reshape(-1, self.bits).astype(jnp.int16) @ places
        return Levels(wire.scale, (levels - self.max_level).astype(jnp.int8).reshape(like.shape))


@pytrees.pytree
class Sign(Codec):
    """The sign of each number, one bit, and the mean magnitude."""

    gamma = 0.3

    def pack(self, key: jax.Array, a: jax.Array) -> Levels:
        return Levels(jnp.mean(jnp.abs(a)), jnp.where(a < 0, -1, 1).astype(jnp.int8))

    def unpack(self, key: jax.Array, wire: Levels, like: Any) -> jax.Array:
        return wire.scale * wire.levels.astype(like.dtype)

    def squeeze(self, wire: Levels) -> Levels:
        return Levels(wire.scale, jnp.packbits(wire.levels.reshape(-1) > 0))

    def expand(self, wire: Levels, like: Any) -> Levels:
        is_positive = jnp.unpackbits(wire.levels, count=like.size).reshape(like.shape)
        return Levels(wire.scale, 2 * is_positive.astype(jnp.int8) - 1)


class Factors(NamedTuple):
    left: jax.Array
    right: jax.Array | None  # None: `left` is the array itself, which is no larger


@pytrees.pytree
class LowRank(Codec):
    """A matrix as a product of two matrices of `rank` columns (Vogels et al., 2019).

    left spans A G for a random G, right = A^T left: the projection of A. Arrays of more axes are
    matrices by their first axis; arrays that would not get smaller are sent unchanged.
    """

    rank: int = field(metadata=STATIC)
    gamma = 0.2

    def pack(self, key: jax.Array, a: jax.Array) -> Factors:
        sides = _sides(a)
        if self.rank * sum(sides) >= a.size:
            return Factors(a, None)
        matrix = a.reshape(sides)
        guess = jax.random.normal(key, (sides[1], self.rank), a.dtype)
        high = jax.lax.Precision.HIGHEST
        left, _ = jnp.linalg.qr(jnp.matmul(matrix, guess, precision=high))
        return Factors(left, jnp.matmul(matrix.T, left, precision=high))

    def unpack(self, key: jax.Array, wire: Factors, like: Any) -> jax.Array:
        if wire.right is None:
            return wire.left
        high = jax.lax.Precision.HIGHEST
        return jnp.matmul(wire.left, wire.right.T, precision=high).reshape(like.shape)


def _sides(a: Any) -> tuple[int, int]:
    first = a.shape[0] if a.ndim > 1 else 1
    return first, int(np.prod(a.shape, dtype=np.int64)) // max(first, 1)
