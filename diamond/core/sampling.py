"""Random sampling of a round: a pure function of (seed, round, agent, purpose).

All algorithms and backends draw with these functions, so all see the same samples. The two
evaluations of eqs. (6) and (7) share one `Sample`, so they cannot draw differently.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import host_transfer, pytrees, threefry

# For stored rows: the first row of a block, indices of rows, or None for all rows. For a stream:
# the key of a batch, a `Batch`, `LargeBatch`, or None for its evaluation sample.
Where = Any
Sampling = Literal["blocks", "rows"]


@pytrees.pytree
class LargeBatch:
    """Large batch of fresh stream rows that stands for all rows, drawn by `key`."""

    key: jax.Array

    def __getitem__(self, j: Any) -> "LargeBatch":
        return LargeBatch(self.key[j])


class Batch(NamedTuple):
    """Rows of a stream, and the key that drew them."""

    rows: pytrees.Tree
    key: jax.Array


def is_stream(where: Where) -> bool:
    """Return whether `where` refers to a stream."""
    if isinstance(where, Batch):
        return True
    return hasattr(where, "dtype") and jnp.issubdtype(where.dtype, jax.dtypes.prng_key)


class Sample(NamedTuple):
    """Sample of one agent for one round, in the letters of eq. (5)."""

    upper: Where  # xi: validation rows of f_x, f_y
    lower: Where  # zeta: training rows of g_y
    cross: Where  # zeta_0: training rows of g_xy
    chain: Where  # zeta_1 .. zeta_K: training rows of each g_yy
    bits: Any  # for the depth k; equal for all agents, which need not communicate k

    def hessian_batch(self, j: Any) -> Where:
        """Return zeta_{j+1}."""
        return None if self.chain is None else self.chain[j]

    def full(self) -> "Sample":
        """Return the same round on all rows; for a stream, on the number that stands for all."""
        large_batch = lambda where: LargeBatch(where.key if isinstance(where, Batch) else where)
        upper, lower, cross, chain = (large_batch(w) if is_stream(w) else None for w in self[:4])
        return Sample(upper, lower, cross, chain, self.bits)

    def full_below(self) -> "Sample":
        """Return the same round with all rows of g, and the sampled rows of f."""
        return Sample(self.upper, None, None, None, self.bits)


AGENT_AXES = Sample(0, 0, 0, 0, None)  # fields that differ between agents


EVALUATION_FOLD = 0xFFFFFFFF  # fold of a run's key beyond all rounds: evaluation samples of streams
ESTIMATION_FOLD = 0xFFFFFFFE  # the fold next to it: rows for estimating numbers
LINK_FOLD = 0x80000000  # folds of a round's key from here on: links, beyond agents, before turns


class ExchangeId(NamedTuple):
    """Identity of an exchange of a run, for randomness on links."""

    key: jax.Array
    t: Any
    turn: Any = None  # number of the exchange, if the round has several
    stage: int = 0

    def purpose(self, number: int) -> jax.Array:
        """Return the key of random purpose `number` on links; fold in an agent or link next."""
        return jax.random.fold_in(
            threefry.typed(_round_words(self.key, self.t, self.turn)), LINK_FOLD + number
        )


def key(seed: int) -> jax.Array:
    """Return the key of a run; the generator is fixed, so a seed means the same everywhere.

    Equal to `jax.random.key` without a program: the last 32 bits, in 64-bit mode the last 64.
    """
    seed = int(np.int64(seed))
    high = seed >> 32 & 0xFFFFFFFF if jax.config.jax_enable_x64 else 0  # type: ignore[attr-defined, unused-ignore]
    words = host_transfer.to_device(np.array([high, seed & 0xFFFFFFFF], np.uint32))
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def evaluation_key(seed: int, part: int, agent: Any) -> jax.Array:
    """Return the key of a stream's evaluation rows, independent of all rounds."""
    return _key_beyond_rounds(EVALUATION_FOLD, seed, part, agent)


def estimation_key(part: int, agent: Any) -> jax.Array:
    """Return the key of the stream rows from which open numbers are estimated."""
    return _key_beyond_rounds(ESTIMATION_FOLD, 0, part, agent)


def _key_beyond_rounds(fold: int, seed: int, part: int, agent: Any) -> jax.Array:
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key(seed), fold), part), agent)


def draw(
    key: jax.Array,
    t: Any,
    agent: Any,
    rows: tuple[Any, Any],
    hessian_batches: int,
    batch: int,
    sampling: Sampling,
    turn: Any = None,
) -> Sample:
    """Draw the sample of `agent`, with `rows` = (train, valid) numbers of rows, in round t.

    For a stream, None in `rows`, it draws a key for each purpose. `turn` is the number of the
    exchange, if the round has several.

    "blocks": `batch` successive rows (of rows shuffled once) from a uniform first row, cyclically;
    every row is equally likely. "rows": each row uniform, with replacement. The modulo makes rows
    unequally likely by less than rows / 2^32.
    """
    train, valid = rows
    round_key = _round_words(key, t, turn)
    shape = (3 + hessian_batches,) if sampling == "blocks" else (3 + hessian_batches, batch)
    agent_key = threefry.fold_in(round_key, agent + 1)
    bits = threefry.bits(agent_key, shape)
    draw_below = lambda bits, count: (bits % jnp.asarray(count, jnp.uint32)).astype(jnp.int32)
    purposes = lambda: threefry.typed(threefry.fold_in(agent_key, jnp.arange(3 + hessian_batches)))
    upper = draw_below(bits[0], valid) if valid is not None else purposes()[0]
    lower = draw_below(bits[1:], train) if train is not None else purposes()[1:]
    common = threefry.bits(threefry.fold_in(round_key, 0), ())
    return Sample(upper, lower[0], lower[1], lower[2:], common)


def _round_words(key: jax.Array, t: Any, turn: Any) -> threefry.Words:
    """Return the key of a round, or of one of its exchanges."""
    words = threefry.fold_in(threefry.words(key), t)
    if turn is not None:  # counted down from the largest number, beyond all agents
        words = threefry.fold_in(words, jnp.uint32(0) - 1 - jnp.uint32(turn))
    return words
