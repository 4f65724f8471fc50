"""The bilevel problem: min_x 1/m sum_i f_i(x, y_i*(x)) with y_i*(x) = argmin_y g_i(x, y)."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, Literal

import jax
import numpy as np

from ..core import host_transfer
from ..core.pytrees import Tree
from ..core.sampling import key
from ..data.preparation import Preparation
from ..hardware import compilation_cache
from ..hardware.processes import raise_in_all_processes
from ..hardware.sharding import AgentSharding
from . import loss_validation, problem_validation, row_validation
from .agent_rows import AgentRows, RowsOrLoader
from .prediction import Predict
from .rematerialization import rematerialize
from .stored_rows import Loss, Objectives, Rows
from .stream import Stream
from .stream_rows import full_batch_rows

Agents = Sequence[int] | np.ndarray
LowerLevel = Literal["personal", "common"]
SHUFFLE = 0x5EED  # seed of the row order, together with the number of rows
PARTS = ("train", "valid", "test")
CHUNK = 16  # least rows of a chunk in averages over all rows
LARGE = 20_000  # numbers in y above which y*(x) is not solved for, unless asked for


@dataclass(frozen=True)
class WithoutLowerLevel:
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
        convex: False says that g_i is not strongly convex in y, as for a network; then runs are
            measured without y*(x) (`measure` of `diamond.simulate`).
        remat: True computes activations of the losses again in the backward pass instead of
            storing them. A number splits a mini-batch into chunks of that many rows and stores the
            activations of one chunk only.
        predict: predict(x, y, rows) returns the predictions of an agent's model for rows, which may
            have no labels: one number per row, or one per row and class.

    Examples:
        >>> loss = lambda x, y, rows: jnp.mean((rows["a"] @ y - rows["b"]) ** 2)
        >>> penalized = lambda x, y, rows: loss(x, y, rows) + jnp.exp(x) * jnp.sum(y**2)
        >>> start = lambda key: (jnp.zeros(()), jnp.zeros(3))
        >>> rows = [{"a": np.eye(3), "b": np.ones(3)}, {"a": np.eye(3), "b": np.zeros(3)}]
        >>> diamond.Problem(loss, penalized, start, train=rows, valid=rows).agents
        2
    """

    def __init__(
        self,
        upper: Callable[..., jax.Array],
        lower: Loss | None,
        init: Callable[[jax.Array], Any],
        train: Sequence[RowsOrLoader] | Stream,
        valid: Sequence[RowsOrLoader] | Stream | None = None,
        test: Sequence[RowsOrLoader] | Stream | None = None,
        metrics: Mapping[str, Callable[..., jax.Array]] | None = None,
        shuffle: bool = True,
        constant: float | None = None,
        lower_level: LowerLevel = "personal",
        prox: Any = None,
        names: Sequence[str] | None = None,
        y_names: Any = None,
        x_meaning: str = "",
        agent_names: Sequence[str] | None = None,
        convex: bool = True,
        remat: bool | int = False,
        predict: Predict | None = None,
    ):
        compilation_cache.enable_compile_cache()
        self.predict = predict
        self.preparation: Preparation | None = None  # of the table that the rows were read from
        self.convex = convex  # whether g_i is strongly convex in y
        initial_point, init = init, lambda key: host_transfer.without_tensors(initial_point(key))
        self.upper, self.lower, self.init = upper, lower, init
        self.metrics, self.constant, self.prox = dict(metrics or {}), constant, prox
        problem_validation.check_metric_names(self.metrics)
        self.lower_level: str = problem_validation.resolve_lower_level(lower, lower_level, valid)
        row_names = {"train": "training", "valid": "validation"}
        sources: dict[str, Any] = {"train": train, "valid": valid}
        if lower is None:
            self.upper, self.init = WithoutLowerLevel(upper), lambda key: (init(key), None)
            self.metrics = {
                name: WithoutLowerLevel(metric) for name, metric in self.metrics.items()
            }
            sources, test = {"train": train}, valid if test is None else test
        if remat:
            self.upper = rematerialize(self.upper, remat)
            self.lower = None if lower is None else rematerialize(lower, remat)
        self.names = None if names is None else problem_validation.check_x_names(names, self.init)
        self.y_names = (
            None if y_names is None else problem_validation.resolve_y_names(y_names, self.init)
        )
        self.x_meaning = x_meaning
        self.notes: tuple[str, ...] = ()  # remarks about the rows, from the code that read the rows
        if test is not None:
            sources["test"], row_names["test"] = test, "test"
        self.streams = {name: part for name, part in sources.items() if isinstance(part, Stream)}
        sources |= {name: part.sample(PARTS.index(name)) for name, part in self.streams.items()}
        parts = {
            name: row_validation.as_agent_list(row_names[name], part)
            for name, part in sources.items()
        }
        row_validation.check_agent_counts(
            {row_names[name]: len(part) for name, part in parts.items()}
        )
        arrange = _shuffle if shuffle else lambda rows: rows
        self.rows = {
            name: AgentRows(row_names[name], part, arrange) for name, part in parts.items()
        }
        self.rows.setdefault("valid", self.rows["train"])  # f averages over these rows
        self.agents = len(train)  # m
        self.agent_names = problem_validation.check_agent_names(agent_names, self.agents)
        self.loaded_agents: list[int] = []  # agents whose rows this process has loaded
        self._stacked: dict[tuple[str, int, Any], Rows] = {}
        self._least_rows: dict[str, int] = {}  # that stacked rows of a part are padded to
        self.captured_bytes = 0  # of arrays that the losses close over, if large
        self._lower_size: int | None = None
        if jax.process_count() > 1 and any(map(callable, chain(*parts.values()))):
            self._load_local_rows()
        else:
            self.load(range(self.agents))
            for part in self.rows.values():
                part.record_sizes()
            self.captured_bytes = loss_validation.check_losses(self)

    def __repr__(self) -> str:
        sizes = jax.eval_shape(self.init, key(0))
        x, y = (sum(leaf.size for leaf in jax.tree.leaves(level)) for level in sizes)
        source = lambda part: "a stream, measured on " * (part in self.streams)
        rows = ", ".join(
            f"{part} {source(part)}{_format_counts(self.counts(part))}" for part in self.rows
        )
        agents = f"{self.agents} agent{'s' * (self.agents != 1)}"
        metrics = f"; metrics {', '.join(self.metrics)}" if self.metrics else ""
        return f"<Problem: {agents}, x of {x} numbers, y of {y}; rows: {rows}{metrics}>"

    def _load_local_rows(self) -> None:
        """Load the rows of the agents on this process's devices; other processes load the rest."""
        devices = jax.devices()
        with raise_in_all_processes():
            self.load(
                AgentSharding(self.agents, len(devices)).agents_of_process(
                    jax.process_index(), devices
                )
            )
        for part in self.rows.values():
            part.exchange_sizes()
        with raise_in_all_processes():
            self.captured_bytes = loss_validation.check_losses(self)

    def load(self, agents: Agents) -> None:
        """Load the rows of these agents into this process."""
        for part in self.rows.values():
            part.load(map(int, agents))
        self.loaded_agents = sorted({*self.loaded_agents, *map(int, agents)})

    def restricted_to(self, agents: Agents) -> "Problem":
        """Return the same problem without the rows of all other agents."""
        restricted = copy(self)
        restricted.loaded_agents, restricted._stacked = [], {}
        restricted.rows = {
            name: part.restricted_to(map(int, agents)) for name, part in self.rows.items()
        }
        restricted.load(agents)
        return restricted

    def select_agents(self, agents: Sequence[int], same_shapes: bool = False) -> "Problem":
        """Return the problem of some of the agents, numbered from 0 in this order.

        With `same_shapes` rows are padded as here, so that such problems share compiled programs.
        """
        selected = copy(self)
        parts = {id(part): part.select(agents) for part in self.rows.values()}
        selected.rows = {name: parts[id(part)] for name, part in self.rows.items()}
        selected.agents, selected._stacked = len(agents), {}
        if same_shapes:
            selected._least_rows = {part: int(self.counts(part).max()) for part in self.rows}
        selected.loaded_agents = [*range(len(agents))]
        if self.agent_names is not None:
            selected.agent_names = tuple(self.agent_names[agent] for agent in agents)
        if self.preparation is not None:
            selected.preparation = self.preparation.select_agents(agents)
        return selected

    def pool_agents(self) -> "Problem":
        """Return the problem of one agent that has the rows of all agents."""
        pooled = self.select_agents([0])
        parts = {id(part): part.pooled() for part in self.rows.values()}
        pooled.rows = {name: parts[id(part)] for name, part in self.rows.items()}
        pooled.agent_names = None
        return pooled

    def annotate(
        self,
        agent_names: Sequence[str] | None = None,
        notes: Sequence[str] = (),
        preparation: Preparation | None = None,
    ) -> "Problem":
        """Return the same problem with names of agents, and notes and preparation of the rows."""
        annotated = copy(self)
        if agent_names is not None:
            annotated.agent_names = problem_validation.check_agent_names(agent_names, self.agents)
        annotated.notes = (*self.notes, *notes)
        annotated.preparation = preparation or self.preparation
        return annotated

    @property
    def lower_size(self) -> int:
        """Number of numbers in y of one agent."""
        if self._lower_size is None:
            _, y = jax.eval_shape(self.init, key(0))
            self._lower_size = sum(leaf.size for leaf in jax.tree.leaves(y))
        return self._lower_size

    @property
    def is_large(self) -> bool:
        """Whether y has more than `LARGE` numbers."""
        return self.lower_size > LARGE

    @property
    def has_lower_solution(self) -> bool:
        """Whether runs solve for y*(x) by default: y is not large, and g_i strongly convex."""
        return self.convex and not self.is_large

    @property
    def measured_part(self) -> str:
        """Name of the part of the rows that metrics are measured on."""
        return "test" if "test" in self.rows else "valid"

    def counts(self, part: str) -> np.ndarray:
        """Return the number of rows of `part` ("train", "valid", "test") per agent."""
        return np.array([facts.size for facts in self.rows[part].facts])

    def full_counts(self, part: str) -> np.ndarray:
        """Return the number of rows per agent; for a stream, the number that stands for all."""
        counts = self.counts(part)
        return (
            np.full_like(counts, full_batch_rows(self.streams[part].large))
            if part in self.streams
            else counts
        )

    def objectives(self, batch: int = 1, agents: Agents | None = None) -> Objectives:
        """Return f and g of all agents, or of `agents`, for blocks of `batch` rows."""
        stack = self.stack if agents is None else partial(self.stack_rows, agents=agents)
        indices = np.arange(self.agents) if agents is None else np.asarray(agents)
        batched_part = lambda name: self.batched_part(
            name, batch, stack, lambda numbers: host_transfer.to_device(numbers[indices])
        )
        train = batched_part("train")
        valid = train if self.lower is None else batched_part("valid")
        captured = self.captured_bytes
        return Objectives(
            train,
            valid,
            self.upper,
            self.lower,
            self.lower_level,
            self.prox,
            captured_bytes=captured,
        )

    def batched_part(
        self, name: str, batch: int, stack: Callable[..., Rows], select_agents: Any
    ) -> Any:
        """Return a part of the rows for blocks: `stack(name, batch)`, wrapped if it is a stream.

        `select_agents` selects the agents in question from an array of all agent numbers.
        """
        if name not in self.streams:
            return stack(name, batch)
        stream = self.streams[name]
        return stream.batched(
            stack(name, 1), select_agents(np.asarray(stream.numbers, np.int32)), batch
        )

    def for_agent(self, agent: int) -> "Problem":
        """Return a one-agent problem as agent `agent` of the network, which streams draw by."""
        if not self.streams:
            return self
        problem = copy(self)
        problem.streams = {name: part.for_agent(agent) for name, part in self.streams.items()}
        problem.rows, problem._stacked = dict(self.rows), {}
        for name, stream in problem.streams.items():
            order = self.rows[name].arrange
            rows = AgentRows(self.rows[name].name, stream.sample(PARTS.index(name)), order)
            rows.load([0])
            rows.record_sizes()
            problem.rows |= {
                k: rows for k, part_rows in self.rows.items() if part_rows is self.rows[name]
            }
        return problem

    def stack(self, part: str, batch: int = 1) -> Rows:
        """Return the rows of all agents as one array per leaf, cached by batch and precision."""
        tag = part, batch, host_transfer.default_dtype().name
        if tag not in self._stacked:
            self._stacked[tag] = self.stack_rows(part, batch, range(self.agents))
        return self._stacked[tag]

    def forget_stacked_rows(self) -> None:
        """Drop the arrays that `stack` caches."""
        self._stacked.clear()

    def stack_rows(self, part: str, batch: int, agents: Agents) -> Rows:
        """Return the rows of some agents, padded to the same length as the rows of all agents."""
        counts = self.counts(part)
        length = max(counts.max(), self._least_rows.get(part, 0)) + batch - 1
        wrap = lambda *a: host_transfer.to_device(
            np.stack([np.take(a, np.arange(length) % len(a), axis=0) for a in a])
        )
        data = jax.tree.map(wrap, *(self.rows[part][agent] for agent in agents))
        agent_counts = host_transfer.to_device(counts[np.asarray(agents)], np.int32)
        return Rows(
            data, agent_counts, batch, is_sample=self.is_sample(part), chunk=self.chunk_rows(batch)
        )

    def chunk_rows(self, batch: int) -> int | None:
        """Return the rows of a chunk in averages over all rows; None: all rows at once."""
        return None if self.has_lower_solution else max(batch, CHUNK)

    def is_sample(self, part: str) -> bool:
        """Return whether the rows of `part` are a sample of a stream."""
        sampled = [name for name, stream in self.streams.items() if stream.samples]
        return any(self.rows[part] is self.rows[name] for name in sampled)

    def start(self, seed: int) -> tuple[Tree, Tree]:
        """Return (x_0, y_0) as strongly typed arrays: weak types would compile the run twice."""
        return problem_validation.check_start(self.init(key(seed)))

    @cached_property
    def starts_at_random(self) -> bool:
        """Whether x starts at random, as a representation does."""
        one, other = (jax.tree.leaves(self.start(seed)[0]) for seed in (0, 1))
        return any(bool((np.asarray(a) != np.asarray(b)).any()) for a, b in zip(one, other))


def _format_counts(counts: np.ndarray) -> str:
    """Format row counts: "60 each", "60 + 40 + 30", "30 to 600"."""
    if (counts == counts[0]).all():
        return f"{counts[0]} each" if len(counts) > 1 else str(counts[0])
    return " + ".join(map(str, counts)) if len(counts) <= 5 else f"{counts.min()} to {counts.max()}"


def _shuffle(rows: Tree) -> Tree:
    count = len(jax.tree.leaves(rows)[0])
    order = np.random.default_rng([SHUFFLE, count]).permutation(count)
    return jax.tree.map(lambda a: a[order], rows)
