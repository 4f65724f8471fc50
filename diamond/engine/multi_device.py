"""Backend that shards the agents over several devices, in one process or several.

All devices run one program, each for its own agents; only messages travel. The devices may belong
to one process (the cores of a machine, its GPUs) or to several, on one host or many, connected by
`jax.distributed` (`diamond.engine.multi_host`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..core import pytrees
from ..core.pytrees import Tree
from ..core.sampling import Sampling
from ..hardware.compiler import ROUNDS_OF_SEVERAL, compiled
from ..hardware.memory import Budget, Fitted
from ..hardware.sharding import AgentSharding
from ..interface.round_interface import Algorithm
from ..network import Network
from ..network.mixing.device_exchange import AXIS, Exchange, LinkExchange, Way, exchange
from ..problem import Objectives, Problem, Rows
from ..schedules.deferred import Consensus, SingleProcess
from .backend import SingleRun
from .precision import Precision, working
from .round_program import REMEDY, WORK, Progress, run_round, start
from .simulated_consensus import Gather
from .single_device import OneDevice

Devices = int | Literal["cores", "all"] | Sequence[jax.Device]
CUT, ALL = PartitionSpec(AXIS), PartitionSpec()


class Spmd(SingleRun):
    """Backend with the agents sharded over devices."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        batch: int,
        sampling: Sampling,
        devices: Devices,
        precision: Precision | None = None,
        way: Way | None = None,
        memory: int | None = None,
    ):
        if network.channels:
            raise ValueError("channels are simulated on one device; leave devices out")
        chosen = named(devices)
        self.mesh = Mesh(np.array(chosen), (AXIS,))
        self.cut, self.sampling = AgentSharding(problem.agents, len(chosen)), sampling
        self.agents, self.shared = problem.agents, NamedSharding(self.mesh, ALL)
        whose = [self.cut.of(process, chosen) for process in range(jax.process_count())]
        here = whose[jax.process_index()]
        problem.load(here)
        spread = partial(self._rows, problem)
        numbers = lambda numbers: self._put(numbers[self.cut.places], CUT)
        part = lambda name: problem.part(name, batch, spread, numbers)
        train = part("train")
        valid = train if problem.lower is None else part("valid")
        kind = problem.upper, problem.lower, problem.lower_level, problem.prox
        self.objectives = Objectives(train, valid, *kind)
        self.working = working(self.objectives, precision)
        self.rows = spread(problem.measured, 1)
        found = exchange(network, self.cut, way)
        self.exchange: Exchange | LinkExchange = jax.tree.map(self._put, found, found.specs)
        self.numbers = self._put(self.cut.places.astype(np.int32), CUT)
        self.abreast = 1 if chosen[0].platform == "cpu" else self.cut.each  # 1 gives equal bits
        self.groups = np.split(here, range(self.abreast, len(here), self.abreast))
        several = len({device.process_index for device in chosen}) > 1
        self.talk: Consensus = Gather(whose) if several else SingleProcess()
        self.budget = Budget(chosen, memory)
        self.surveys: dict[Any, Fitted] = {}
        self.rounds = Fitted(_advance, self.abreast, self.budget, WORK, REMEDY)

    def begin(self, algorithm: Algorithm, x: Tree, y: Tree) -> Progress:
        """Return the progress of all agents before round 0."""
        return start(algorithm, x, y, self.agents)

    def place(self, progress: Progress) -> Progress:
        """Lay out the progress of all agents for `run_until`."""
        return Progress(self._put(progress.t, ALL), *self.spread(tuple(progress[1:])))

    def spread(self, tree: Tree) -> Tree:
        """Distribute arrays of all agents over the devices."""
        return jax.tree.map(lambda a: self._put(np.asarray(a)[self.cut.places], CUT), tree)

    def whole(self, tree: Tree) -> Tree:
        """Gather arrays of all agents into this process."""
        found = jax.jit(_first, static_argnums=1, out_shardings=self.shared)(tree, self.agents)
        return jax.tree.map(np.asarray, found)

    def run_until(
        self, algorithm: Algorithm, key: jax.Array, progress: Progress, until: int
    ) -> tuple[Progress, bool]:
        """Run rounds up to `until`, or through the first that leaves x or y not finite."""
        fixed = algorithm, self.working, self.exchange, self.numbers, key
        options = {"sampling": self.sampling, "mesh": self.mesh}
        after, broken = jax.block_until_ready(self.rounds(*fixed, progress, until, **options))
        first = int(np.min(self.whole(broken)))
        if first == until:
            return after, True
        after, _ = jax.block_until_ready(self.rounds(*fixed, progress, first + 1, **options))
        return after, False

    def _put(self, array: Any, spec: PartitionSpec) -> jax.Array:
        found = jnp.asarray(array)
        cut = NamedSharding(self.mesh, spec)
        return jax.make_array_from_callback(found.shape, cut, lambda where: found[where])

    def _rows(self, problem: Problem, part: str, batch: int) -> Rows:
        """Load the rows of all agents, each agent's rows on its device."""
        counts = problem.counts(part)
        length = int(counts.max()) + batch - 1

        def of(which: int) -> Any:
            """Return leaf number `which` of the agents on this process's devices."""
            sample = np.asarray(leaves[which])
            kind = jnp.asarray(sample[:0]).dtype
            shape = (len(self.cut.places), length, *sample.shape[1:])

            def here(where: Any) -> np.ndarray:
                agents = self.cut.places[where[0]]
                found = np.empty((len(agents), *shape[1:]), kind)
                for own, agent in zip(found, agents):
                    rows = jax.tree.leaves(problem.rows[part][agent])[which]
                    own[:] = np.take(rows, np.arange(length) % len(rows), axis=0)
                return found

            return jax.make_array_from_callback(shape, NamedSharding(self.mesh, CUT), here)

        leaves, structure = jax.tree.flatten(problem.rows[part][problem.here[0]])
        data = jax.tree.unflatten(structure, map(of, range(len(leaves))))
        own = self._put(counts[self.cut.places].astype(np.int32), CUT)
        return Rows(data, own, batch, sampled=problem.sampled(part))


def select_backend(
    problem: Problem,
    network: Network,
    batch: int,
    sampling: Sampling,
    devices: Devices | None,
    precision: Precision | None = None,
    memory: int | None = None,
) -> OneDevice | Spmd:
    """Select a backend: one device, or the agents sharded over `devices` if given.

    `memory` is the number of bytes that the run may use on each device; None: all.
    """
    given = problem, network, batch, sampling
    if devices is None:
        return OneDevice(*given, precision, memory)
    return Spmd(*given, devices, precision, memory=memory)


def _first(tree: Tree, agents: int) -> Tree:
    return jax.tree.map(lambda a: a[:agents], tree)


@compiled("sampling", "mesh", "size", options=ROUNDS_OF_SEVERAL)
def _advance(
    algorithm: Algorithm,
    problem: Objectives,
    mixing: Exchange | LinkExchange,
    agents: jax.Array,
    key: jax.Array,
    progress: Progress,
    until: Any,
    sampling: Sampling,
    mesh: Mesh,
    size: int,
) -> tuple[Progress, jax.Array]:
    """Run rounds up to `until`; return the round in which each place failed, or `until`.

    Devices exchange nothing but messages, so none waits to learn whether others are finite.
    """

    def here(
        algorithm: Algorithm,
        problem: Objectives,
        mixing: Exchange | LinkExchange,
        agents: jax.Array,
        key: jax.Array,
        progress: Progress,
        until: jax.Array,
    ) -> tuple[Progress, jax.Array]:
        def body(carry: Any) -> Any:
            before, broken = carry
            after = run_round(algorithm, problem, mixing, key, sampling, before, agents, size)
            lost = ~jax.vmap(pytrees.finite)((after.state.x, after.state.y))
            return after, jnp.where(lost, jnp.minimum(broken, before.t), broken)

        fine = jnp.full(agents.shape, until)
        return jax.lax.while_loop(lambda carry: carry[0].t < until, body, (progress, fine))

    where: Any = Progress(*(ALL, CUT, CUT, CUT))  # type: ignore[arg-type]
    cut: Callable[..., Any] = jax.shard_map(
        here,
        mesh=mesh,
        in_specs=(ALL, CUT, mixing.specs, CUT, ALL, where, ALL),
        out_specs=(where, CUT),
        check_vma=False,
    )
    return cut(algorithm, problem, mixing, agents, key, progress, jnp.int32(until))


def named(devices: Devices) -> list[jax.Device]:
    """Return the devices meant: a number of devices, all, the cores of this machine, or a list."""
    if devices == "cores":
        found = jax.devices("cpu")
        if len(found) < 2:
            raise ValueError(
                "JAX shows this machine's cores as one device; set JAX_NUM_CPU_DEVICES to the "
                "number of cores before Python starts, or say `diamond run --devices cores`"
            )
        return found
    if isinstance(devices, str):
        if devices != "all":
            raise ValueError(f"devices = {devices!r}; there are 'cores', 'all', a number or a list")
        return jax.devices()
    if isinstance(devices, int):
        there = jax.devices()
        if not 1 <= devices <= len(there):
            raise ValueError(
                f"devices = {devices}, but JAX has {len(there)} of kind {there[0].device_kind}"
            )
        return there[:devices]
    return list(devices)
