"""What few bytes an array can be told in: `pack` makes them, `unpack` an array again.

`key` is known to both ends. `squeeze` turns what is packed into the bytes that travel, `expand`
back; bits are only moved, so a simulation need not.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diamond.core import tree

STATIC = {"static": True}


class Codec(ABC):
    """One array, packed in a smaller one."""

    gamma: float = 1.0  # the share of the change that is safe to make

    @property
    def name(self) -> str:
        """What it is called in a line of text."""
        kind = type(self).__name__.lower()
        given = [f"{v:g}" if isinstance(v, float) else str(v) for v in vars(self).values()]
        return f"{kind}({given[0]})" if given and given[0] != "None" else kind

    @abstractmethod
    def pack(self, key: jax.Array, a: jax.Array) -> Any: ...

    @abstractmethod
    def unpack(self, key: jax.Array, wire: Any, like: Any) -> jax.Array: ...

    def squeeze(self, wire: Any) -> Any:
        return wire

    def expand(self, wire: Any, like: Any) -> Any:
        return wire


class Scaled(NamedTuple):
    scale: jax.Array | None
    numbers: jax.Array


@tree.pytree
@dataclass(frozen=True)
class Rounded(Codec):
    """float16 or bfloat16; the first, whose range is small, in units of the largest number."""

    kind: str = field(metadata=STATIC)

    def pack(self, key: jax.Array, a: jax.Array) -> Scaled:
        if self.kind == "bfloat16":
            return Scaled(None, a.astype(self.kind))
        largest = jnp.max(jnp.abs(a), initial=0)
        scale = jnp.where(largest > 0, largest, 1).astype(a.dtype)
        return Scaled(scale, (a / scale).astype(self.kind))

    def unpack(self, key: jax.Array, wire: Scaled, like: Any) -> jax.Array:
        numbers = wire.numbers.astype(like.dtype)
        return numbers if wire.scale is None else wire.scale * numbers


class Sparse(NamedTuple):
    values: jax.Array
    places: jax.Array | None


class Some(Codec):
    """`share` of the numbers, or `terms` of them."""

    share: float | None
    terms: int | None

    def count(self, size: int) -> int:
        wanted = round((self.share or 0) * size) if self.terms is None else self.terms
        return min(size, max(1, wanted))

    def unpack(self, key: jax.Array, wire: Sparse, like: Any) -> jax.Array:
        flat = jnp.zeros(like.size, like.dtype)
        return flat.at[wire.places].set(wire.values).reshape(like.shape)


@tree.pytree
@dataclass(frozen=True)
class Top(Some):
    """The largest, each with its place."""

    share: float | None = field(metadata=STATIC)
    terms: int | None = field(metadata=STATIC)

    @property
    def gamma(self) -> float:  # type: ignore[override]
        return 0.4 if self.share is None else min(1.0, 0.8 * self.share**0.5)

    def pack(self, key: jax.Array, a: jax.Array) -> Sparse:
        flat = a.reshape(-1)
        places = jax.lax.top_k(jnp.abs(flat), self.count(flat.size))[1]
        kind = jnp.uint16 if flat.size <= 2**16 else jnp.uint32
        return Sparse(flat[places], places.astype(kind))


@tree.pytree
@dataclass(frozen=True)
class Random(Some):
    """Some at random; which ones, the key says: that needs not be told."""

    share: float | None = field(metadata=STATIC)
    terms: int | None = field(metadata=STATIC)

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
    levels: jax.Array  # of each number; int8, or `bits` bits of each in bytes


@tree.pytree
@dataclass(frozen=True)
class Quantized(Codec):
    """`bits` bits a number: a level from -L to L, L = 2^(bits - 1) - 1, up or down at random.

    levels = floor(L |a| / max |a| + U) sign(a); the scale that is told with them makes the array as
    close to a as it can be (`fitted`: never further than 0 is), or right in the mean.
    """

    bits: int = field(metadata=STATIC)
    fitted: bool = field(default=True, metadata=STATIC)

    @property
    def gamma(self) -> float:  # type: ignore[override]
        return {2: 0.2, 3: 0.5}.get(self.bits, 0.8)

    @property
    def most(self) -> int:
        return 2 ** (self.bits - 1) - 1

    def pack(self, key: jax.Array, a: jax.Array) -> Levels:
        largest = jnp.max(jnp.abs(a), initial=0)
        scale = jnp.where(largest > 0, largest, 1) / self.most
        ratio = jnp.abs(a) / scale
        up = jax.random.uniform(key, a.shape, jnp.float32)
        whole = jnp.minimum(jnp.floor(ratio + up.astype(a.dtype)), self.most) * jnp.sign(a)
        if self.fitted:
            scale = _fit(a, whole)
        return Levels(scale.astype(a.dtype), whole.astype(jnp.int8))

    def unpack(self, key: jax.Array, wire: Levels, like: Any) -> jax.Array:
        return wire.scale * wire.levels.astype(like.dtype)

    def squeeze(self, wire: Levels) -> Levels:
        unsigned = (wire.levels.reshape(-1).astype(jnp.int16) + self.most).astype(jnp.uint8)
        each = (unsigned[:, None] >> jnp.arange(self.bits, dtype=jnp.uint8)) & 1
        return Levels(wire.scale, jnp.packbits(each.reshape(-1)))

    def expand(self, wire: Levels, like: Any) -> Levels:
        each = jnp.unpackbits(wire.levels, count=like.size * self.bits)
        places = jnp.left_shift(1, jnp.arange(self.bits, dtype=jnp.int16)).astype(jnp.int16)
        whole = each.reshape(-1, self.bits).astype(jnp.int16) @ places
        return Levels(wire.scale, (whole - self.most).astype(jnp.int8).reshape(like.shape))


@tree.pytree
@dataclass(frozen=True)
class Sign(Codec):
    """The sign of each number, one bit, and their mean size."""

    gamma = 0.3

    def pack(self, key: jax.Array, a: jax.Array) -> Levels:
        return Levels(jnp.mean(jnp.abs(a)), jnp.where(a < 0, -1, 1).astype(jnp.int8))

    def unpack(self, key: jax.Array, wire: Levels, like: Any) -> jax.Array:
        return wire.scale * wire.levels.astype(like.dtype)

    def squeeze(self, wire: Levels) -> Levels:
        return Levels(wire.scale, jnp.packbits(wire.levels.reshape(-1) > 0))

    def expand(self, wire: Levels, like: Any) -> Levels:
        above = jnp.unpackbits(wire.levels, count=like.size).reshape(like.shape)
        return Levels(wire.scale, 2 * above.astype(jnp.int8) - 1)


class Factors(NamedTuple):
    left: jax.Array
    right: jax.Array | None  # None: the array itself, which is no larger


@tree.pytree
@dataclass(frozen=True)
class LowRank(Codec):
    """A matrix as a product of two of `rank` columns (Vogels et al., 2019).

    left spans A G for a random G, right = A^T left: the projection of A. Arrays of more axes are
    matrices by their first; what would not get smaller is told as it is.
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


def _fit(a: jax.Array, b: jax.Array) -> jax.Array:
    """The factor of b that comes closest to a."""
    square = jnp.sum(b * b)
    return jnp.sum(a * b) / jnp.where(square > 0, square, 1)
