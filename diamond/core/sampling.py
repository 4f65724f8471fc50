"""All that is random in a round: a pure function of (seed, round, agent, purpose).

Every algorithm and every runtime draws by these lines, so all of them see the same samples. The
two evaluations of eqs. (6) and (7) are handed one `Sample`: they cannot draw apart.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import host, threefry, tree

# Of stored rows: the first of a block, the numbers of single ones, or None for all of them. Of a
# stream: the key that a batch is drawn by, a `Batch`, `Many`, or None for what it is measured on.
Where = Any
Sampling = Literal["blocks", "rows"]


@tree.pytree
@dataclass(frozen=True)
class Many:
    """What a stream has for all rows: a large batch of fresh ones, drawn by `key`."""

    key: jax.Array

    def __getitem__(self, j: Any) -> "Many":
        return Many(self.key[j])


class Batch(NamedTuple):
    """Rows of a stream, and the key they were drawn by."""

    rows: tree.Tree
    key: jax.Array


def endless(where: Where) -> bool:
    """Whether that is of a stream."""
    if isinstance(where, Batch):
        return True
    return hasattr(where, "dtype") and jnp.issubdtype(where.dtype, jax.dtypes.prng_key)


class Sample(NamedTuple):
    """What one agent drew for one round, in the letters of eq. (5)."""

    upper: Where  # xi: validation rows of f_x, f_y
    lower: Where  # zeta: training rows of g_y
    cross: Where  # zeta_0: training rows of g_xy
    chain: Where  # zeta_1 .. zeta_K: training rows of each g_yy
    bits: Any  # for the depth k; the same for all agents, so that they agree untold

    def link(self, j: Any) -> Where:
        """zeta_{j+1}."""
        return None if self.chain is None else self.chain[j]

    def full(self) -> "Sample":
        """The same round on all rows; of a stream, on as many as stand for them."""
        many = lambda where: Many(where.key if isinstance(where, Batch) else where)
        upper, lower, cross, chain = (many(w) if endless(w) else None for w in self[:4])
        return Sample(upper, lower, cross, chain, self.bits)

    def full_below(self) -> "Sample":
        """The same round with all rows of g, and those of f as drawn."""
        return Sample(self.upper, None, None, None, self.bits)


EACH = Sample(0, 0, 0, 0, None)  # which fields differ between agents


MEASURED = 0xFFFFFFFF  # of a run's key, beyond all rounds: what streams are measured on
LOOKED_AT = 0xFFFFFFFE  # next to it: what numbers are found from
LINKS = 0x80000000  # of a round's key, and on: beyond the agents, short of the turns


class Moment(NamedTuple):
    """Which exchange of which run it is, for what is random on the way of a message."""

    key: jax.Array
    t: Any
    turn: Any = None  # which of the round, if that has several
    stage: int = 0

    def purpose(self, number: int) -> jax.Array:
        """The key of the `number`-th thing that is random on links; then of an agent, or a link."""
        return jax.random.fold_in(
            threefry.typed(_round_words(self.key, self.t, self.turn)), LINKS + number
        )


def key(seed: int) -> jax.Array:
    """The key of a run; the generator is named, so that a seed means the same everywhere.

    As `jax.random.key` makes it, with no program: the last 32 bits, in 64-bit mode the last 64.
    """
    seed = int(np.int64(seed))
    high = seed >> 32 & 0xFFFFFFFF if jax.config.jax_enable_x64 else 0  # type: ignore[attr-defined]
    words = host.put(np.array([high, seed & 0xFFFFFFFF], np.uint32))
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def measured(seed: int, part: int, agent: Any) -> jax.Array:
    """The key of the rows that a stream is measured on: of no round, so independent of them all."""
    return _beyond(MEASURED, seed, part, agent)


def looked_at(part: int, agent: Any) -> jax.Array:
    """The key of the rows of a stream that numbers left to the run are found from."""
    return _beyond(LOOKED_AT, 0, part, agent)


def _beyond(what: int, seed: int, part: int, agent: Any) -> jax.Array:
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key(seed), what), part), agent)


def draw(
    key: jax.Array,
    t: Any,
    agent: Any,
    rows: tuple[Any, Any],
    links: int,
    batch: int,
    sampling: Sampling,
    turn: Any = None,
) -> Sample:
    """What `agent`, with `rows` = (train, valid) rows of its own, draws in round t.

    Of a part that is a stream, None in `rows`, it draws a key for each purpose.

    `turn`: which exchange of the round it draws for, if that has several.

    "blocks": `batch` successive rows (of rows shuffled once) from a first one that is uniform, the
    last followed by the first; every row is equally likely. "rows": each row uniform on its own,
    with replacement. The modulo makes rows unequally likely by less than rows / 2^32.
    """
    train, valid = rows
    round_key = _round_words(key, t, turn)
    shape = (3 + links,) if sampling == "blocks" else (3 + links, batch)
    own = threefry.fold_in(round_key, agent + 1)
    bits = threefry.bits(own, shape)
    below = lambda bits, count: (bits % jnp.asarray(count, jnp.uint32)).astype(jnp.int32)
    purposes = lambda: threefry.typed(threefry.fold_in(own, jnp.arange(3 + links)))
    upper = below(bits[0], valid) if valid is not None else purposes()[0]
    lower = below(bits[1:], train) if train is not None else purposes()[1:]
    common = threefry.bits(threefry.fold_in(round_key, 0), ())
    return Sample(upper, lower[0], lower[1], lower[2:], common)


def _round_words(key: jax.Array, t: Any, turn: Any) -> threefry.Words:
    """The key of a round, or of one of its exchanges."""
    found = threefry.fold_in(threefry.words(key), t)
    if turn is not None:  # counted down from the largest number, where no agent is
        found = threefry.fold_in(found, jnp.uint32(0) - 1 - jnp.uint32(turn))
    return found
