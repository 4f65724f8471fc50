"""Streams of rows: a user function draws fresh rows for every batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree, named_leaves
from ..core.sampling import evaluation_key, key
from ..core.validation import as_int
from ..hardware.compiler import compile_fast
from .agent_rows import RowsOrLoader
from .stored_rows import Rows
from .stream_rows import StreamRows

Draw = Callable[[jax.Array, jax.Array], Tree]
HOW = "write it in jax.numpy and jax.random, from its key and the agent's number alone"


@dataclass(frozen=True)
class Stream:
    """Stream of rows for `train`, `valid` or `test` of a `Problem`, made by `stream`."""

    draw: Draw
    numbers: tuple[int, ...]  # the agents' numbers in the network
    evaluation: int | tuple[RowsOrLoader, ...]  # number of rows to measure on, or these rows
    large: int | None
    seed: int

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def samples(self) -> bool:
        """Whether measures use drawn rows; given evaluation rows count as all rows."""
        return isinstance(self.evaluation, int)

    def sample(self, part: int) -> list[RowsOrLoader]:
        """Return the rows that each agent is measured on; each `part` has its own sample."""
        if not isinstance(self.evaluation, int):
            return list(self.evaluation)
        draw_sample = lambda agent: _draw_rows(
            self.draw, self.evaluation, evaluation_key(self.seed, part, agent), agent
        )
        return [partial(draw_sample, agent) for agent in self.numbers]

    def batched(self, sample: Rows, numbers: Any, batch: int) -> StreamRows:
        """Return batches for the agents that `sample` belongs to."""
        return StreamRows(sample, numbers, self.draw, batch, self.large)

    def for_agent(self, agent: int) -> "Stream":
        """Return the stream of one agent, as agent `agent` of the network."""
        return replace(self, numbers=(agent,))


def stream(
    draw: Draw,
    agents: int,
    evaluation: int | Sequence[RowsOrLoader] = 1000,
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

    Examples:
        >>> rows = diamond.stream(lambda key, agent: {"a": jax.random.normal(key, (3,))}, agents=4)
        >>> len(rows)
        4
    """
    count = as_int("agents", agents, 1)
    if large is not None:
        as_int("large", large, 1)
    evaluation_rows: Any = evaluation
    if isinstance(evaluation, Sequence):
        if len(evaluation) != count:
            raise ValueError(
                f"there are rows to evaluate on for {len(evaluation)} agents, and the stream has "
                f"{count}; give one entry an agent"
            )
        evaluation_rows = tuple(evaluation)
    else:
        as_int("evaluation", evaluation, 2)
    result = Stream(draw, tuple(range(count)), evaluation_rows, large, as_int("seed", seed, 0))
    check_draw(result)
    return result


def check_draw(stream: Stream) -> None:
    """Reject an invalid draw function, naming the agent."""
    numbers = jnp.asarray(stream.numbers, jnp.int32)
    keys = jax.vmap(lambda n: jax.random.fold_in(key(stream.seed), n))(numbers)
    try:
        first, again = (jax.vmap(stream.draw)(keys, numbers) for _ in range(2))
        first, again = (jax.tree.map(np.asarray, rows) for rows in (first, again))
    except Exception as cause:
        _check_same_form(stream)  # has the better message where agents differ
        lines = str(cause).splitlines()
        reason = lines[-1] if "Traceback" in lines[0] else f"{type(cause).__name__}: {lines[0]}"
        raise ValueError(
            f"agent {stream.numbers[0]}'s draw cannot be made part of a compiled program "
            f"({reason}): {HOW}"
        ) from cause
    leaves = named_leaves(first)
    if not leaves:
        raise ValueError(
            f"agent {stream.numbers[0]}'s draw returns no array; return one row, such as "
            f'{{"a": features, "b": target}}'
        )
    for name, leaf in leaves.items():
        if leaf.dtype.kind not in "biuf":
            raise TypeError(f"agent {stream.numbers[0]}'s draw{name} has dtype {leaf.dtype}: {HOW}")
        apart = (
            leaf != named_leaves(again)[name]
            if name in named_leaves(again)
            else np.ones(len(leaf), bool)
        )
        unequal = apart.reshape(len(leaf), -1).any(1) & ~_has_nan(leaf)
        if unequal.any():
            raise ValueError(
                f"agent {stream.numbers[int(np.argmax(unequal))]}'s draw{name} is not pure: two "
                f"calls with one key give two rows; {HOW}"
            )


def _has_nan(leaf: np.ndarray) -> np.ndarray:
    """Mark rows with NaN, which compares unequal; validation of rows rejects them later."""
    return np.isnan(leaf.astype(float)).reshape(len(leaf), -1).any(1)


def _check_same_form(stream: Stream) -> None:
    """Reject a draw function whose rows differ in shape or type between agents."""
    kinds = lambda rows: {k: f"{np.asarray(a).dtype}{list(np.shape(a))}" for k, a in rows.items()}
    first: dict[str, str] = {}
    for agent in stream.numbers:
        try:
            kinds_of_agent = kinds(named_leaves(stream.draw(key(stream.seed), agent)))  # type: ignore[arg-type]
        except Exception:
            return
        first = first or kinds_of_agent
        if kinds_of_agent != first:
            raise ValueError(
                f"agent {agent}'s draw gives a row of {kinds_of_agent}, agent "
                f"{stream.numbers[0]}'s one of {first}; bring all agents to the same shape and "
                f"dtype"
            )


@compile_fast("draw", "count")
def _draw_rows(draw: Draw, count: int, key: jax.Array, agent: Any) -> Tree:
    return jax.vmap(draw, (0, None))(jax.random.split(key, count), agent)
