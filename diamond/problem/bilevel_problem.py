"""The bilevel problem: min_x 1/m sum_i f_i(x, y_i*(x)) with y_i*(x) = argmin_y g_i(x, y)."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..core import host_transfer
from ..core.pytrees import Tree
from ..core.sampling import key
from ..hardware import compilation_cache
from ..hardware.processes import together
from ..hardware.sharding import AgentSharding
from . import problem_validation
from .local_rows import Given, LocalRows
from .stored_rows import Loss, Objectives, Rows
from .stream import Stream
from .stream_rows import all_rows

Agents = Sequence[int] | np.ndarray
LowerLevel = Literal["personal", "common"]
SHUFFLE = 0x5EED  # seed of the row order, together with the number of rows
PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class Alone:
    """Adapter that gives a loss of x and rows the signature (x, y, rows) and ignores y."""

    loss: Callable[..., jax.Array]

    def __call__(self, x: Tree, y: Tree, rows: Tree) -> jax.Array:
        return self.loss(x, rows)


class Problem:
    """A bilevel problem: two losses, a starting point and the rows of every agent.

    Rows are one pytree of arrays per agent, with rows along the first axis; agents may have
    different numbers of rows. An entry may also be a function without arguments that returns the
    rows: in a run over several processes, only the process of that agent calls the function. Each
    of `train`, `valid` and `test` may be a `diamond.stream` instead, which draws rows on demand.

    Args:
        upper: f(x, y, rows), a scalar: an average over the rows, plus terms without rows.
        lower: g(x, y, rows), likewise. None: no lower level; then `upper(x, rows)` and the metrics
            do not take y, `init(key)` returns x_0, f averages over `train`, and `valid` is not
            needed.
        init: init(key) returns (x_0, y_0), pytrees of floating-point arrays, equal for all agents.
        train: rows of g.
        valid: rows of f.
        test: rows of the metrics; by default the rows of `valid`.
        metrics: functions (x, y, rows) -> value, averages over the rows, by name.
        lower_level: "personal" (default): each agent has its own y. "common": all agents share
            y*(x) = argmin_y 1/m sum_i g_i(x, y) and must also reach consensus on y.
        prox: a regularizer or constraint of x without a gradient, from `diamond.prox`.
        shuffle: put the rows of each agent into a fixed random order. With False the given order
            stays and must not be sorted, because batches are runs of successive rows.
        constant: upper loss of a prediction that ignores its input; a run that ends there warns.
        names: names of the entries of x along its first axis, for an x of one array.
        y_names: names of the entries of each array of y along its first axes, in the structure of
            y: a list, nested lists, or one text for a whole array, as in {"w": ["age", "dose"],
            "b": "intercept"}.
        x_meaning: meaning of the numbers in x, as in "log-penalty".
        agent_names: names of the agents, in their order, for tables, exports and reports.
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
        problem_validation.metrics(self.metrics)
        self.lower_level: str = problem_validation.lower_level(lower, lower_level, valid)
        called = {"train": "training", "valid": "validation"}
        given: dict[str, Any] = {"train": train, "valid": valid}
        if lower is None:
            self.upper, self.init = Alone(upper), lambda key: (init(key), None)
            self.metrics = {name: Alone(metric) for name, metric in self.metrics.items()}
            given, test = {"train": train}, valid if test is None else test
        self.names = None if names is None else problem_validation.names(names, self.init)
        self.y_names = None if y_names is None else problem_validation.y_names(y_names, self.init)
        self.x_meaning = x_meaning
        self.notes: tuple[str, ...] = ()  # remarks about the rows, from the code that read the rows
        if test is not None:
            given["test"], called["test"] = test, "test"
        self.streams = {name: part for name, part in given.items() if isinstance(part, Stream)}
        given |= {name: part.sample(PARTS.index(name)) for name, part in self.streams.items()}
        parts = {
            name: problem_validation.listed(called[name], part) for name, part in given.items()
        }
        problem_validation.agents({called[name]: len(part) for name, part in parts.items()})
        order = _shuffled if shuffle else lambda rows: rows
        self.rows = {name: LocalRows(called[name], part, order) for name, part in parts.items()}
        self.rows.setdefault("valid", self.rows["train"])  # f averages over these rows
        self.agents = len(train)  # m
        self.agent_names = problem_validation.agent_names(agent_names, self.agents)
        self.here: list[int] = []  # agents whose rows this process has loaded
        self._stacked: dict[tuple[str, int, Any], Rows] = {}
        if jax.process_count() > 1 and any(map(callable, chain(*parts.values()))):
            self._share()
        else:
            self.load(range(self.agents))
            for part in self.rows.values():
                part.know()
            problem_validation.losses(self)

    def __repr__(self) -> str:
        sizes = jax.eval_shape(self.init, key(0))
        x, y = (sum(leaf.size for leaf in jax.tree.leaves(level)) for level in sizes)
        of = lambda part: "a stream, measured on " * (part in self.streams)
        rows = ", ".join(f"{part} {of(part)}{_spoken(self.counts(part))}" for part in self.rows)
        agents = f"{self.agents} agent{'s' * (self.agents != 1)}"
        own = f"; metrics {', '.join(self.metrics)}" if self.metrics else ""
        return f"<Problem: {agents}, x of {x} numbers, y of {y}; rows: {rows}{own}>"

    def _share(self) -> None:
        """Load the rows of the agents on this process's devices; other processes load the rest."""
        devices = jax.devices()
        with together():
            self.load(AgentSharding(self.agents, len(devices)).of(jax.process_index(), devices))
        for part in self.rows.values():
            part.share()
        with together():
            problem_validation.losses(self)

    def load(self, agents: Agents) -> None:
        """Load the rows of these agents into this process."""
        for part in self.rows.values():
            part.load(map(int, agents))
        self.here = sorted({*self.here, *map(int, agents)})

    def restricted_to(self, agents: Agents) -> "Problem":
        """Return the same problem without the rows of all other agents."""
        found = copy(self)
        found.here, found._stacked = [], {}
        found.rows = {
            name: part.restricted_to(map(int, agents)) for name, part in self.rows.items()
        }
        found.load(agents)
        return found

    def annotate(
        self, agent_names: Sequence[str] | None = None, notes: Sequence[str] = ()
    ) -> "Problem":
        """Return the same problem with names of the agents and with notes about the rows."""
        found = copy(self)
        if agent_names is not None:
            found.agent_names = problem_validation.agent_names(agent_names, self.agents)
        found.notes = (*self.notes, *notes)
        return found

    @property
    def measured(self) -> str:
        """Name of the part of the rows that metrics are measured on."""
        return "test" if "test" in self.rows else "valid"

    def counts(self, part: str) -> np.ndarray:
        """Return the number of rows of `part` ("train", "valid", "test") per agent."""
        return np.array([known.size for known in self.rows[part].known])

    def all_rows(self, part: str) -> np.ndarray:
        """Return the number of rows per agent; for a stream, the number that stands for all."""
        counts = self.counts(part)
        return (
            np.full_like(counts, all_rows(self.streams[part].large))
            if part in self.streams
            else counts
        )

    def objectives(self, batch: int = 1, agents: Agents | None = None) -> Objectives:
        """Return f and g of all agents, or of `agents`, for blocks of `batch` rows."""
        of = self.stack if agents is None else partial(self.stack_rows, agents=agents)
        here = np.arange(self.agents) if agents is None else np.asarray(agents)
        part = lambda name: self.part(
            name, batch, of, lambda numbers: host_transfer.to_device(numbers[here])
        )
        train = part("train")
        valid = train if self.lower is None else part("valid")
        kind = self.lower_level, self.prox
        return Objectives(train, valid, self.upper, self.lower, *kind)

    def part(self, name: str, batch: int, of: Callable[..., Rows], numbers: Any) -> Any:
        """Return a part of the rows for blocks: `of(name, batch)`, wrapped if the part is a stream.

        `numbers` selects the agents in question from an array of all agent numbers.
        """
        if name not in self.streams:
            return of(name, batch)
        stream = self.streams[name]
        return stream.drawn(of(name, 1), numbers(np.asarray(stream.numbers, np.int32)), batch)

    def for_agent(self, agent: int) -> "Problem":
        """Return a one-agent problem as agent `agent` of the network, which streams draw by."""
        if not self.streams:
            return self
        found = copy(self)
        found.streams = {name: part.for_agent(agent) for name, part in self.streams.items()}
        found.rows, found._stacked = dict(self.rows), {}
        for name, stream in found.streams.items():
            order = self.rows[name].arranged
            rows = LocalRows(self.rows[name].name, stream.sample(PARTS.index(name)), order)
            rows.load([0])
            rows.know()
            found.rows |= {k: rows for k, held in self.rows.items() if held is self.rows[name]}
        return found

    def stack(self, part: str, batch: int = 1) -> Rows:
        """Return the rows of all agents as one array per leaf, cached by batch and precision."""
        tag = part, batch, jnp.zeros(()).dtype.name
        if tag not in self._stacked:
            self._stacked[tag] = self.stack_rows(part, batch, range(self.agents))
        return self._stacked[tag]

    def stack_rows(self, part: str, batch: int, agents: Agents) -> Rows:
        """Return the rows of some agents, padded to the same length as the rows of all agents."""
        counts = self.counts(part)
        length = counts.max() + batch - 1
        wrap = lambda *a: host_transfer.to_device(
            np.stack([np.take(a, np.arange(length) % len(a), axis=0) for a in a])
        )
        data = jax.tree.map(wrap, *(self.rows[part][agent] for agent in agents))
        own = host_transfer.to_device(counts[np.asarray(agents)], np.int32)
        return Rows(data, own, batch, sampled=self.sampled(part))

    def sampled(self, part: str) -> bool:
        """Return whether the rows of `part` are a sample of a stream."""
        drawn = [name for name, stream in self.streams.items() if stream.samples]
        return any(self.rows[part] is self.rows[name] for name in drawn)

    def start(self, seed: int) -> tuple[Tree, Tree]:
        """Return (x_0, y_0) as strongly typed arrays: weak types would compile the run twice."""
        return problem_validation.point(self.init(key(seed)))


def _spoken(counts: np.ndarray) -> str:
    """Format row counts: "60 each", "60 + 40 + 30", "30 to 600"."""
    if (counts == counts[0]).all():
        return f"{counts[0]} each" if len(counts) > 1 else str(counts[0])
    return " + ".join(map(str, counts)) if len(counts) <= 5 else f"{counts.min()} to {counts.max()}"


def _shuffled(rows: Tree) -> Tree:
    count = len(jax.tree.leaves(rows)[0])
    order = np.random.default_rng([SHUFFLE, count]).permutation(count)
    return jax.tree.map(lambda a: a[order], rows)
