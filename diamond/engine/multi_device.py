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
from ..core.cost_counter import Cost
from ..core.exclusions import check_combination
from ..core.pytrees import Tree
from ..core.sampling import Sampling
from ..hardware.compiler import MULTI_DEVICE_ROUND_OPTIONS, compile_program
from ..hardware.device_memory import Budget, MemoryBoundedProgram
from ..hardware.processes import gather_messages
from ..hardware.sharding import AgentSharding
from ..interface.round_interface import Algorithm
from ..network import Network
from ..network.mixing.sharded_mixer import (
    AXIS,
    ShardedLinkMixer,
    ShardedMixer,
    Transport,
    sharded_mixer,
)
from ..problem import Objectives, Problem, Rows
from ..schedules.deferred import Consensus, MeasureFunction, Measurement, SingleProcess
from .backend import SingleRunBackend
from .precision import Precision, working_objectives
from .round_program import REMEDY, WORK, Progress, initial_progress, run_round

Devices = int | Literal["cores", "all"] | Sequence[jax.Device]
CUT, ALL = PartitionSpec(AXIS), PartitionSpec()


class GatherConsensus:
    """A `diamond.schedules.deferred.Consensus` between processes that measure their own agents."""

    def __init__(self, agents_of_process: Sequence[np.ndarray]):
        self.agents_of_process = agents_of_process

    def local(self, name: str, measure: MeasureFunction) -> Measurement:
        """Return the local values of all agents."""
        values, cost = measure()
        return self._gather_rows(values), self._gather_costs(cost)

    def maximum(self, name: str, measure: MeasureFunction) -> Measurement:
        """Return the maximum of each number over all agents."""
        values, cost = measure()
        local_maximum = np.max(values, axis=0)
        maxima = [
            np.frombuffer(message, local_maximum.dtype)
            for message in gather_messages(local_maximum.tobytes())
        ]
        return np.max(maxima, axis=0), self._gather_costs(cost)

    def _gather_rows(self, values: np.ndarray) -> np.ndarray:
        """Gather the rows of all agents from the processes."""
        shape = values.shape[1:]
        gathered = np.empty((1 + max(map(np.max, self.agents_of_process)), *shape), values.dtype)
        for agents, message in zip(self.agents_of_process, gather_messages(values.tobytes())):
            gathered[agents] = np.frombuffer(message, values.dtype).reshape(-1, *shape)
        return gathered

    def _gather_costs(self, cost: Cost) -> Cost:
        """Gather the costs of all agents from the processes."""
        local_counts = [count for count in cost if np.ndim(count)]
        gathered = iter(self._gather_rows(np.stack(local_counts, axis=1)).T if local_counts else ())
        return Cost(*(next(gathered) if np.ndim(count) else count for count in cost))


class MultiDevice(SingleRunBackend):
    """Backend with the agents sharded over devices."""

    agents: int

    def __init__(
        self,
        problem: Problem,
        network: Network,
        batch: int,
        sampling: Sampling,
        devices: Devices,
        precision: Precision | None = None,
        transport: Transport | None = None,
        memory: int | None = None,
    ):
        used = {"changing members": network.epochs, "several devices": True}
        check_combination(network.features | used, network.name)
        mesh_devices = resolve_devices(devices)
        self.mesh = Mesh(np.array(mesh_devices), (AXIS,))
        self.donates = problem.is_large  # rounds overwrite the progress before
        self.sharding, self.sampling = AgentSharding(problem.agents, len(mesh_devices)), sampling
        self.agents, self.shared = problem.agents, NamedSharding(self.mesh, ALL)
        agents_of_process = [
            self.sharding.agents_of_process(process, mesh_devices)
            for process in range(jax.process_count())
        ]
        local_agents = agents_of_process[jax.process_index()]
        problem.load(local_agents)
        load_rows = partial(self._rows, problem)
        to_agents = lambda values: self._to_devices(values[self.sharding.agent_at_place], CUT)
        load_part = lambda name: problem.batched_part(name, batch, load_rows, to_agents)
        train = load_part("train")
        valid = train if problem.lower is None else load_part("valid")
        losses = problem.upper, problem.lower, problem.lower_level, problem.prox
        self.objectives = Objectives(train, valid, *losses, captured_bytes=problem.captured_bytes)
        self.working = working_objectives(
            self.objectives, precision, casts_y=not problem.has_lower_solution
        )
        self.rows = load_rows(problem.measured_part, 1)
        device_exchange = sharded_mixer(network, self.sharding, transport)
        self.exchange: ShardedMixer | ShardedLinkMixer = jax.tree.map(
            self._to_devices, device_exchange, device_exchange.specs
        )
        self.agent_numbers = self._to_devices(self.sharding.agent_at_place.astype(np.int32), CUT)
        self.parallel_agents = (
            1 if mesh_devices[0].platform == "cpu" else self.sharding.places_per_device
        )  # 1 gives equal bits
        self.groups = np.split(
            local_agents, range(self.parallel_agents, len(local_agents), self.parallel_agents)
        )
        has_several_processes = len({device.process_index for device in mesh_devices}) > 1
        self.consensus: Consensus = (
            GatherConsensus(agents_of_process) if has_several_processes else SingleProcess()
        )
        self.budget = Budget(mesh_devices, memory)
        self.measurement_programs: dict[Any, MemoryBoundedProgram] = {}
        rounds, size = _donating_run_rounds if self.donates else _run_rounds, self.parallel_agents
        self.rounds = MemoryBoundedProgram(rounds, size, self.budget, WORK, REMEDY)

    def initial_run_progress(self, algorithm: Algorithm, x: Tree, y: Tree) -> Progress:
        return initial_progress(algorithm, x, y, self.agents)

    def scatter_progress(self, progress: Progress) -> Progress:
        return Progress(self._to_devices(progress.t, ALL), *self.scatter(tuple(progress[1:])))

    def scatter(self, tree: Tree) -> Tree:
        return jax.tree.map(
            lambda a: self._to_devices(np.asarray(a)[self.sharding.agent_at_place], CUT), tree
        )

    def gather(self, tree: Tree) -> Tree:
        if self.donates and jax.process_count() == 1:  # without a copy on every device
            return jax.tree.map(lambda a: np.asarray(a)[: self.agents], tree)
        gathered = jax.jit(_without_padding, static_argnums=1, out_shardings=self.shared)(
            tree, self.agents
        )
        return jax.tree.map(np.asarray, gathered)

    def run_until(
        self, algorithm: Algorithm, key: jax.Array, progress: Progress, until: int
    ) -> tuple[Progress, bool]:
        inputs = algorithm, self.working, self.exchange, self.agent_numbers, key, progress
        options = {"sampling": self.sampling, "mesh": self.mesh}
        run = lambda until: jax.block_until_ready(self.rounds(*inputs, until, **options))
        after, failed_rounds = run(until)
        first_failed = int(np.min(self.gather(failed_rounds)))
        if first_failed == until:
            return after, True
        if self.donates:  # the progress before is overwritten
            return after._replace(t=self._to_devices(np.int32(first_failed + 1), ALL)), False
        return run(first_failed + 1)[0], False

    def _to_devices(self, array: Any, spec: PartitionSpec) -> jax.Array:
        host_array = jnp.asarray(array)
        array_sharding = NamedSharding(self.mesh, spec)
        return jax.make_array_from_callback(
            host_array.shape, array_sharding, lambda index: host_array[index]
        )

    def _rows(self, problem: Problem, part: str, batch: int) -> Rows:
        """Load the rows of all agents, each agent's rows on its device."""
        counts = problem.counts(part)
        length = int(counts.max()) + batch - 1

        def load_leaf(leaf_index: int) -> Any:
            """Return leaf number `leaf_index` of the agents on this process's devices."""
            sample = np.asarray(leaves[leaf_index])
            dtype = jnp.asarray(sample[:0]).dtype
            shape = (len(self.sharding.agent_at_place), length, *sample.shape[1:])

            def load_shard(index: Any) -> np.ndarray:
                agents = self.sharding.agent_at_place[index[0]]
                shard = np.empty((len(agents), *shape[1:]), dtype)
                for agent_rows, agent in zip(shard, agents):
                    rows = jax.tree.leaves(problem.rows[part][agent])[leaf_index]
                    agent_rows[:] = np.take(rows, np.arange(length) % len(rows), axis=0)
                return shard

            return jax.make_array_from_callback(shape, NamedSharding(self.mesh, CUT), load_shard)

        leaves, structure = jax.tree.flatten(problem.rows[part][problem.loaded_agents[0]])
        data = jax.tree.unflatten(structure, map(load_leaf, range(len(leaves))))
        row_counts = self._to_devices(counts[self.sharding.agent_at_place].astype(np.int32), CUT)
        is_sample, chunk = problem.is_sample(part), problem.chunk_rows(batch)
        return Rows(data, row_counts, batch, is_sample=is_sample, chunk=chunk)


def _without_padding(tree: Tree, count: int) -> Tree:
    return jax.tree.map(lambda a: a[:count], tree)


def _run_rounds_until(
    algorithm: Algorithm,
    problem: Objectives,
    mixing: ShardedMixer | ShardedLinkMixer,
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

    def run_local_rounds(*inputs: Any) -> tuple[Progress, jax.Array]:
        algorithm, problem, mixing, agents, key, progress, until = inputs

        def body(carry: Any) -> Any:
            before, failed = carry
            after = run_round(algorithm, problem, mixing, key, sampling, before, agents, size)
            is_lost = ~jax.vmap(pytrees.finite)((after.state.x, after.state.y))
            return after, jnp.where(is_lost, jnp.minimum(failed, before.t), failed)

        never_failed = jnp.full(agents.shape, until)

        def has_rounds(carry: Any) -> Any:
            return (carry[0].t < until) & ~jnp.bool_(algorithm.is_finished(carry[0].state))

        return jax.lax.while_loop(has_rounds, body, (progress, never_failed))

    progress_spec: Any = Progress(*(ALL, CUT, CUT, CUT))  # type: ignore[arg-type]
    sharded_rounds: Callable[..., Any] = jax.shard_map(
        run_local_rounds,
        mesh=mesh,
        in_specs=(ALL, CUT, mixing.specs, CUT, ALL, progress_spec, ALL),
        out_specs=(progress_spec, CUT),
        check_vma=False,
    )
    return sharded_rounds(algorithm, problem, mixing, agents, key, progress, jnp.int32(until))


_STATIC = ("sampling", "mesh", "size")
_run_rounds = compile_program(*_STATIC, options=MULTI_DEVICE_ROUND_OPTIONS)(_run_rounds_until)
_donating_run_rounds = compile_program(
    *_STATIC, options=MULTI_DEVICE_ROUND_OPTIONS, donated=("progress",)
)(_run_rounds_until)


def resolve_devices(devices: Devices) -> list[jax.Device]:
    """Return the devices meant: a number of devices, all, the cores of this machine, or a list."""
    if devices == "cores":
        cores = jax.devices("cpu")
        if len(cores) < 2:
            raise ValueError(
                "JAX shows this machine's cores as one device; set JAX_NUM_CPU_DEVICES to the "
                "number of cores before Python starts, or use `diamond run --devices cores`"
            )
        return cores
    if isinstance(devices, str):
        if devices != "all":
            raise ValueError(f"devices = {devices!r}; there are 'cores', 'all', a number or a list")
        return jax.devices()
    if isinstance(devices, int):
        available = jax.devices()
        if not 1 <= devices <= len(available):
            raise ValueError(
                f"devices = {devices}, but JAX has {len(available)} of kind "
                f"{available[0].device_kind}"
            )
        return available[:devices]
    return list(devices)
