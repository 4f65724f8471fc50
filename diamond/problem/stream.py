"""Streams of rows: a user function draws fresh rows for every batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree, named
from ..core.sampling import key, measured
from ..core.validation import as_int
from .local_rows import Given
from .stored_rows import Rows
from .stream_rows import Drawn

Draw = Callable[[jax.Array, jax.Array], Tree]
HOW = "write it in jax.numpy and jax.random, from its key and the agent's number alone"


@dataclass(frozen=True)
class Stream:
    """Stream of rows for `train`, `valid` or `test` of a `Problem`, made by `stream`."""

    draw: Draw
    numbers: tuple[int, ...]  # the agents' numbers in the network
    evaluation: int | tuple[Given, ...]  # number of rows to measure on, or these rows
    large: int | None
    seed: int

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def samples(self) -> bool:
        """Whether measures use drawn rows; given evaluation rows count as all rows."""
        return isinstance(self.evaluation, int)

    def sample(self, part: int) -> list[Given]:
        """Return the rows that each agent is measured on; each `part` has its own sample."""
        if not isinstance(self.evaluation, int):
            return list(self.evaluation)
        of = lambda agent: _rows(
            self.draw, self.evaluation, measured(self.seed, part, agent), agent
        )
        return [partial(of, agent) for agent in self.numbers]

    def drawn(self, sample: Rows, numbers: Any, batch: int) -> Drawn:
        """Return batches for the agents that `sample` belongs to."""
        return Drawn(sample, numbers, self.draw, batch, self.large)

    def for_agent(self, agent: int) -> "Stream":
        """Return the stream of one agent, as agent `agent` of the network."""
        return replace(self, numbers=(agent,))


def stream(
    draw: Draw,
    agents: int,
    evaluation: int | Sequence[Given] = 1000,
    large: int | None = None,
    seed: int = 0,
) -> Stream:
    """Describe an endless stream of rows for `agents` agents.

    Every batch is drawn afresh, so no row is seen twice; the two evaluations of momentum use the
    same draw. The history contains standard errors of the measures (`upper_loss_se`, ...).

    Args:
        draw: draw(key, agent) returns one row, a pytree of arrays. It must be pure JAX: it is
            mapped over a batch of keys inside the compiled round, with `agent` a traced number.
        agents: number of agents.
        evaluation: number of rows per agent in the sample that stands for "all rows" in measures,
            drawn once by keys that depend on `seed` only; or rows, one pytree per agent, that count
            as all rows.
        large: number of fresh rows for methods that ask for all rows; None rejects such methods.
        seed: seed of the evaluation sample.

    Returns:
        A `Stream`.
    """
    count = as_int("agents", agents, 1)
    if large is not None:
        as_int("large", large, 1)
    given: Any = evaluation
    if isinstance(evaluation, Sequence):
        if len(evaluation) != count:
            raise ValueError(
                f"there are rows to evaluate on for {len(evaluation)} agents, and the stream has "
                f"{count}; give one entry an agent"
            )
        given = tuple(evaluation)
    else:
        as_int("evaluation", evaluation, 2)
    found = Stream(draw, tuple(range(count)), given, large, as_int("seed", seed, 0))
    check(found)
    return found


def check(given: Stream) -> None:
    """Reject an invalid draw function, naming the agent."""
    numbers = jnp.asarray(given.numbers, jnp.int32)
    keys = jax.vmap(lambda n: jax.random.fold_in(key(given.seed), n))(numbers)
    try:
        first, again = (jax.vmap(given.draw)(keys, numbers) for _ in range(2))
        first, again = (jax.tree.map(np.asarray, rows) for rows in (first, again))
    except Exception as cause:
        _alike(given)  # has the better message where agents differ
        raise ValueError(
            f"agent {given.numbers[0]}'s draw cannot be made part of a compiled program "
            f"({type(cause).__name__}: {str(cause).splitlines()[0]}): {HOW}"
        ) from cause
    leaves = named(first)
    if not leaves:
        raise ValueError(
            f"agent {given.numbers[0]}'s draw returns no array; return one row, such as "
            f'{{"a": features, "b": target}}'
        )
    for name, leaf in leaves.items():
        if leaf.dtype.kind not in "biuf":
            raise TypeError(f"agent {given.numbers[0]}'s draw{name} has dtype {leaf.dtype}: {HOW}")
        apart = leaf != named(again)[name] if name in named(again) else np.ones(len(leaf), bool)
        unequal = apart.reshape(len(leaf), -1).any(1) & ~_missing(leaf)
        if unequal.any():
            raise ValueError(
                f"agent {given.numbers[int(np.argmax(unequal))]}'s draw{name} is not pure: two "
                f"calls with one key give two rows; {HOW}"
            )


def _missing(leaf: np.ndarray) -> np.ndarray:
    """Mark rows with NaN, which compares unequal; validation of rows rejects them later."""
    return np.isnan(leaf.astype(float)).reshape(len(leaf), -1).any(1)


def _alike(given: Stream) -> None:
    """Reject a draw function whose rows differ in shape or type between agents."""
    kinds = lambda rows: {k: f"{np.asarray(a).dtype}{list(np.shape(a))}" for k, a in rows.items()}
    first: dict[str, str] = {}
    for agent in given.numbers:
        try:
            own = kinds(named(given.draw(key(given.seed), agent)))  # type: ignore[arg-type]
        except Exception:
            return
        first = first or own
        if own != first:
            raise ValueError(
                f"agent {agent}'s draw gives a row of {own}, agent {given.numbers[0]}'s one of "
                f"{first}; bring all agents to the same shape and dtype"
            )


@partial(jax.jit, static_argnums=(0, 1))
def _rows(draw: Draw, count: int, key: jax.Array, agent: Any) -> Tree:
    return jax.vmap(draw, (0, None))(jax.random.split(key, count), agent)
