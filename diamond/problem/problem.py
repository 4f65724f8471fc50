"""What the agents solve: min_x 1/m sum_i f_i(x, y_i*(x)) with y_i*(x) = argmin_y g_i(x, y)."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..core import host
from ..core.sampling import key
from ..core.tree import Tree
from ..machine import compilation_cache
from ..machine.processes import together
from ..machine.sharding import AgentSharding
from . import validate
from .drawn import all_rows
from .local_rows import Given, LocalRows
from .rows import Loss, Objectives, Rows
from .stream import Stream

Agents = Sequence[int] | np.ndarray
LowerLevel = Literal["personal", "common"]
SHUFFLE = 0x5EED  # rows are shuffled by this seed and their count
PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class Alone:
    """A loss of x and rows, as one of x, y and rows: there is no y."""

    loss: Callable[..., jax.Array]

    def __call__(self, x: Tree, y: Tree, rows: Tree) -> jax.Array:
        return self.loss(x, rows)


class Problem:
    """Two losses, a starting point and every agent's own rows.

    `upper` f(x, y, rows) and `lower` g(x, y, rows) return a scalar: an average over the rows, plus
    terms without rows. `init(key)` gives (x_0, y_0), any pytrees of floating-point arrays, the same
    for every agent. `train` (rows of g) and `valid` (rows of f) have one pytree of arrays per
    agent, rows first; agents may differ in how many. An entry may be a function of no argument that
    returns the agent's rows: where several processes share a run, it is called only in that of the
    agent. Any of the parts may be a `diamond.stream`, whose rows are drawn when they are needed.
    `metrics` are functions (x, y, rows) -> value, averages over the rows too, measured on
    the rows of `test` (of `valid` if there are none).

    `lower_level` "common": all agents share one y, y*(x) = argmin_y 1/m sum_i g_i(x, y), and must
    agree on it too. `lower=None`: there is no lower level; then `upper(x, rows)` and the metrics
    are of x alone, `init(key)` gives x_0, f averages over the rows of `train`, and `valid` is not
    needed. `prox`, from `diamond.prox`: a regularizer or a constraint of x that has no gradient.

    Each agent's rows are put into a random order once, always the same one; `shuffle=False` keeps
    yours, which then must not be sorted: batches are runs of successive rows. `constant`, if given,
    is the upper loss of a prediction that ignores its input: a run that ends there is warned of.
    `names`, for an x of one array, are those of its entries along the first axis: features, rows.
    `y_names` has the structure of y and names the entries of each array along its first axes: a
    list, nested lists, or one text for the whole array; {"w": ["age", "dose"], "b": "intercept"}.
    `x_meaning` says what a number of x is, as in "log-penalty". `agent_names` are those of the
    agents, in their order. Tables, exports and reports show them.
    """

    def __init__(
        self,
        upper: Callable[..., jax.Array],
        lower: Loss | None,
        init: Callable[[jax.Array], Any],
        train: Sequence[Given] | Stream,
        valid: Sequence[Given] | Stream | None = None,
        test: Sequence[Given] | Stream | None = None,
        metrics: Mapping[str, Callable[..., jax.Array]] | None = None,
        shuffle: bool = True,
        constant: float | None = None,
        lower_level: LowerLevel = "personal",
        prox: Any = None,
        names: Sequence[str] | None = None,
        y_names: Any = None,
        x_meaning: str = "",
        agent_names: Sequence[str] | None = None,
    ):
        compilation_cache.compile_cache()
        self.upper, self.lower, self.init = upper, lower, init
        self.metrics, self.constant, self.prox = dict(metrics or {}), constant, prox
        validate.metrics(self.metrics)
        self.lower_level: str = validate.lower_level(lower, lower_level, valid)
        called = {"train": "training", "valid": "validation"}
        given: dict[str, Any] = {"train": train, "valid": valid}
        if lower is None:
            self.upper, self.init = Alone(upper), lambda key: (init(key), None)
            self.metrics = {name: Alone(metric) for name, metric in self.metrics.items()}
            given, test = {"train": train}, valid if test is None else test
        self.names = None if names is None else validate.names(names, self.init)
        self.y_names = None if y_names is None else validate.y_names(y_names, self.init)
        self.x_meaning = x_meaning
        self.notes: tuple[str, ...] = ()  # about the rows, as their reader has them
        if test is not None:
            given["test"], called["test"] = test, "test"
        self.streams = {name: part for name, part in given.items() if isinstance(part, Stream)}
        given |= {name: part.sample(PARTS.index(name)) for name, part in self.streams.items()}
        parts = {name: validate.listed(called[name], part) for name, part in given.items()}
        validate.agents({called[name]: len(part) for name, part in parts.items()})
        order = _shuffled if shuffle else lambda rows: rows
        self.rows = {name: LocalRows(called[name], part, order) for name, part in parts.items()}
        self.rows.setdefault("valid", self.rows["train"])  # what f averages over
        self.agents = len(train)  # m
        self.agent_names = validate.agent_names(agent_names, self.agents)
        self.here: list[int] = []  # those whose rows are in this process
        self._stacked: dict[tuple[str, int, Any], Rows] = {}
        if jax.process_count() > 1 and any(map(callable, chain(*parts.values()))):
            self._share()
        else:
            self.load(range(self.agents))
            for part in self.rows.values():
                part.know()
            validate.losses(self)

    def __repr__(self) -> str:
        sizes = jax.eval_shape(self.init, key(0))
        x, y = (sum(leaf.size for leaf in jax.tree.leaves(level)) for level in sizes)
        of = lambda part: "a stream, measured on " * (part in self.streams)
        rows = ", ".join(f"{part} {of(part)}{_spoken(self.counts(part))}" for part in self.rows)
        agents = f"{self.agents} agent{'s' * (self.agents != 1)}"
        own = f"; metrics {', '.join(self.metrics)}" if self.metrics else ""
        return f"<Problem: {agents}, x of {x} numbers, y of {y}; rows: {rows}{own}>"

    def _share(self) -> None:
        """Load the rows of the agents on this process's devices; the others load theirs."""
        devices = jax.devices()
        with together():
            self.load(AgentSharding(self.agents, len(devices)).of(jax.process_index(), devices))
        for part in self.rows.values():
            part.share()
        with together():
            validate.losses(self)

    def load(self, agents: Agents) -> None:
        """Have the rows of these agents in this process."""
        for part in self.rows.values():
            part.load(map(int, agents))
        self.here = sorted({*self.here, *map(int, agents)})

    def kept(self, agents: Agents) -> "Problem":
        """The same without the rows of all other agents."""
        found = copy(self)
        found.here, found._stacked = [], {}
        found.rows = {name: part.kept(map(int, agents)) for name, part in self.rows.items()}
        found.load(agents)
        return found

    def annotate(
        self, agent_names: Sequence[str] | None = None, notes: Sequence[str] = ()
    ) -> "Problem":
        """The same with names of the agents, and with notes about the rows for its readers."""
        found = copy(self)
        if agent_names is not None:
            found.agent_names = validate.agent_names(agent_names, self.agents)
        found.notes = (*self.notes, *notes)
        return found

    @property
    def measured(self) -> str:
        """The part that metrics are measured on."""
        return "test" if "test" in self.rows else "valid"

    def counts(self, part: str) -> np.ndarray:
        """How many rows of `part` ("train", "valid", "test") each agent has."""
        return np.array([known.size for known in self.rows[part].known])

    def all_rows(self, part: str) -> np.ndarray:
        """How many rows each agent has; of a stream, how many stand for all."""
        counts = self.counts(part)
        return (
            np.full_like(counts, all_rows(self.streams[part].large))
            if part in self.streams
            else counts
        )

    def objectives(self, batch: int = 1, agents: Agents | None = None) -> Objectives:
        """f and g of all agents, or of those, ready for blocks of `batch` rows."""
        of = self.stack if agents is None else partial(self.some, agents=agents)
        here = np.arange(self.agents) if agents is None else np.asarray(agents)
        part = lambda name: self.part(name, batch, of, lambda numbers: host.put(numbers[here]))
        train = part("train")
        valid = train if self.lower is None else part("valid")
        kind = self.lower_level, self.prox
        return Objectives(train, valid, self.upper, self.lower, *kind)

    def part(self, name: str, batch: int, of: Callable[..., Rows], numbers: Any) -> Any:
        """A part of the rows, ready for blocks: `of(name, batch)`; of a stream, its sample's.

        `numbers` takes, of the numbers of all agents, those of the agents in question.
        """
        if name not in self.streams:
            return of(name, batch)
        stream = self.streams[name]
        return stream.drawn(of(name, 1), numbers(np.asarray(stream.numbers, np.int32)), batch)

    def seated(self, agent: int) -> "Problem":
        """One agent's problem as that of `agent` in the network, whose number streams draw by."""
        if not self.streams:
            return self
        found = copy(self)
        found.streams = {name: part.seated(agent) for name, part in self.streams.items()}
        found.rows, found._stacked = dict(self.rows), {}
        for name, stream in found.streams.items():
            order = self.rows[name].arranged
            rows = LocalRows(self.rows[name].name, stream.sample(PARTS.index(name)), order)
            rows.load([0])
            rows.know()
            found.rows |= {k: rows for k, held in self.rows.items() if held is self.rows[name]}
        return found

    def stack(self, part: str, batch: int = 1) -> Rows:
        """The rows of all agents as one array a leaf, made once for each batch and precision."""
        tag = part, batch, jnp.zeros(()).dtype.name
        if tag not in self._stacked:
            self._stacked[tag] = self.some(part, batch, range(self.agents))
        return self._stacked[tag]

    def some(self, part: str, batch: int, agents: Agents) -> Rows:
        """The rows of some agents, as long as if they were those of all."""
        counts = self.counts(part)
        length = counts.max() + batch - 1
        wrap = lambda *a: host.put(
            np.stack([np.take(a, np.arange(length) % len(a), axis=0) for a in a])
        )
        data = jax.tree.map(wrap, *(self.rows[part][agent] for agent in agents))
        own = host.put(counts[np.asarray(agents)], np.int32)
        return Rows(data, own, batch, sampled=self.sampled(part))

    def sampled(self, part: str) -> bool:
        """Whether the rows of `part` are a sample of a stream."""
        drawn = [name for name, stream in self.streams.items() if stream.samples]
        return any(self.rows[part] is self.rows[name] for name in drawn)

    def start(self, seed: int) -> tuple[Tree, Tree]:
        """(x_0, y_0) as strongly typed arrays: a weak type would compile the run twice."""
        return validate.point(self.init(key(seed)))


def _spoken(counts: np.ndarray) -> str:
    """ "60 each", "60 + 40 + 30", "30 to 600"."""
    if (counts == counts[0]).all():
        return f"{counts[0]} each" if len(counts) > 1 else str(counts[0])
    return " + ".join(map(str, counts)) if len(counts) <= 5 else f"{counts.min()} to {counts.max()}"


def _shuffled(rows: Tree) -> Tree:
    count = len(jax.tree.leaves(rows)[0])
    order = np.random.default_rng([SHUFFLE, count]).permutation(count)
    return jax.tree.map(lambda a: a[order], rows)
