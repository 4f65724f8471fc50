"""Rows that never end: drawn anew for every batch by a function of the user."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.sampling import key, measured
from ..core.tree import Tree, named
from ..core.whole_numbers import whole
from .drawn import Drawn
from .local_rows import Given
from .rows import Rows

Draw = Callable[[jax.Array, jax.Array], Tree]
HOW = "write it in jax.numpy and jax.random, from its key and the agent's number alone"


@dataclass(frozen=True)
class Stream:
    """What `stream` returns: for `train`, `valid` or `test` of a `Problem`."""

    draw: Draw
    numbers: tuple[int, ...]  # of the agents in the network
    evaluation: int | tuple[Given, ...]  # how many rows it is measured on, or these
    large: int | None
    seed: int

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def samples(self) -> bool:
        """Whether it is measured on rows that are drawn; those that were given are all there is."""
        return isinstance(self.evaluation, int)

    def sample(self, part: int) -> list[Given]:
        """What each agent's rows are measured on; `part` of the problem has a sample of its own."""
        if not isinstance(self.evaluation, int):
            return list(self.evaluation)
        of = lambda agent: _rows(
            self.draw, self.evaluation, measured(self.seed, part, agent), agent
        )
        return [partial(of, agent) for agent in self.numbers]

    def drawn(self, sample: Rows, numbers: Any, batch: int) -> Drawn:
        """The rows of the agents whose `sample` that is, in batches."""
        return Drawn(sample, numbers, self.draw, batch, self.large)

    def seated(self, agent: int) -> "Stream":
        """That of one agent, as `agent` of the network."""
        return replace(self, numbers=(agent,))


def stream(
    draw: Draw,
    agents: int,
    evaluation: int | Sequence[Given] = 1000,
    large: int | None = None,
    seed: int = 0,
) -> Stream:
    """Rows without end for `agents` agents: draw(key, agent) gives one row, a pytree of arrays.

    It must be pure JAX: it is mapped over a batch of keys inside the compiled round, with `agent` a
    traced number. Every batch is drawn anew and nothing is kept, so no row is ever seen twice; the
    two evaluations of momentum see the same draw. What is measured "on all rows" is measured on a
    sample of `evaluation` rows an agent, drawn once by keys of its own that depend on `seed` only,
    and the history has its standard errors (`upper_loss_se`, ...). `evaluation` may also be rows of
    yours, one pytree an agent, which are then taken for all there are. `large`: methods that ask
    for all rows get so many fresh ones; without it they refuse.
    """
    count = whole("agents", agents, 1)
    if large is not None:
        whole("large", large, 1)
    given: Any = evaluation
    if isinstance(evaluation, Sequence):
        if len(evaluation) != count:
            raise ValueError(
                f"there are rows to evaluate on for {len(evaluation)} agents, and the stream has "
                f"{count}; give one entry an agent"
            )
        given = tuple(evaluation)
    else:
        whole("evaluation", evaluation, 2)
    found = Stream(draw, tuple(range(count)), given, large, whole("seed", seed, 0))
    check(found)
    return found


def check(given: Stream) -> None:
    """Refuse a draw that is not what it must be, naming the agent."""
    numbers = jnp.asarray(given.numbers, jnp.int32)
    keys = jax.vmap(lambda n: jax.random.fold_in(key(given.seed), n))(numbers)
    try:
        first, again = (jax.vmap(given.draw)(keys, numbers) for _ in range(2))
        first, again = (jax.tree.map(np.asarray, rows) for rows in (first, again))
    except Exception as cause:
        _alike(given)  # says more, where agents differ
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
    """Rows with NaN, which nothing equals; they are refused where rows are."""
    return np.isnan(leaf.astype(float)).reshape(len(leaf), -1).any(1)


def _alike(given: Stream) -> None:
    """Refuse a draw whose rows differ in shape or type from agent to agent."""
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
