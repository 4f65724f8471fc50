"""Backend that shards the arrays inside every agent over devices: a mesh of agents x model.

XLA partitions the program of one device by the shardings of its arguments and adds the
communication between devices (GSPMD), so that the trajectory is that of one device up to rounding.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..core.exclusions import check_combination
from ..core.pytrees import Tree
from ..core.sampling import Sampling
from ..hardware.compiler import MULTI_DEVICE_ROUND_OPTIONS, compile_program
from ..hardware.device_memory import Budget, MemoryBoundedProgram
from ..interface.round_interface import Algorithm
from ..network import Network
from ..network.mixing.mixing_interface import Mixing
from ..problem import Objectives, Problem
from .multi_device import Devices, resolve_devices
from .precision import Precision
from .round_program import REMEDY, WORK, Progress, initial_progress_with_links, run_rounds_until
from .single_device import SingleDevice

AGENTS_AXIS, MODEL_AXIS = "agents", "model"  # names of the axes of the mesh
LEAST_BYTES = 2**20  # bytes of an array of one agent from which "size" shards it
Specs = Any  # "size", None, or a tree of PartitionSpec


@dataclass(frozen=True)
class ModelSharding:
    """Sharding of the arrays of one agent over the axis "model" of a mesh of devices.

    Attributes:
        y: tree of `jax.sharding.PartitionSpec` with the structure of y and the axis name "model";
            "size" shards the largest axis that the devices divide, of arrays above 1 MiB; None
            shards nothing.
        x: the same for x.
        agents: devices along the axis of agents, a divisor of the number of agents; all other
            devices are along the axis "model".
    """

    y: Specs = "size"
    x: Specs = None
    agents: int = 1


def partition_specs(specs: Specs, tree: Tree, devices: int, name: str) -> Tree:
    """Return a PartitionSpec for each array of one agent."""
    if isinstance(specs, str) and specs != "size":
        raise ValueError(f"shard: {name} = {specs!r}; give 'size' or a tree of PartitionSpec")
    if specs is None:
        return jax.tree.map(lambda leaf: PartitionSpec(), tree)
    if isinstance(specs, str):
        return jax.tree.map(partial(spec_by_size, devices=devices), tree)
    structure: Any = jax.tree.structure(tree)
    try:
        given = structure.flatten_up_to(specs)
    except ValueError as cause:
        raise ValueError(
            f"shard: the tree of {name} has another structure than {name}, {structure}; give one "
            f"PartitionSpec for each array"
        ) from cause
    for spec, leaf in zip(given, jax.tree.leaves(tree)):
        for axis, axis_name in enumerate(spec):
            if axis_name is None:
                continue
            if axis_name != MODEL_AXIS or axis >= len(leaf.shape) or leaf.shape[axis] % devices:
                raise ValueError(
                    f"shard: {spec} of an array of {name} of shape {leaf.shape}; name axes "
                    f"{MODEL_AXIS!r} whose length {devices} devices divide"
                )
    return jax.tree.unflatten(structure, given)


def spec_by_size(leaf: Any, devices: int) -> PartitionSpec:
    """Return the spec that shards the largest axis that the devices divide, if above 1 MiB."""
    axes = [i for i, length in enumerate(leaf.shape) if length % devices == 0]
    if leaf.size * leaf.dtype.itemsize < LEAST_BYTES or not axes:
        return PartitionSpec()
    largest = max(axes, key=lambda i: int(leaf.shape[i]))
    return PartitionSpec(*(MODEL_AXIS if i == largest else None for i in range(largest + 1)))


class ShardedModel(SingleDevice):
    """Backend with all agents on a mesh of devices, and y of every agent sharded."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        batch: int,
        sampling: Sampling,
        shard: ModelSharding,
        devices: Devices = "all",
        precision: Precision | None = None,
        memory: int | None = None,
    ):
        mesh_devices = resolve_devices(devices)
        if shard.agents < 1 or len(mesh_devices) % shard.agents or problem.agents % shard.agents:
            raise ValueError(
                f"shard: agents = {shard.agents} must divide the {len(mesh_devices)} devices and "
                f"the {problem.agents} agents"
            )
        used = {"sharded models": True, "several processes": jax.process_count() > 1}
        check_combination(used, "this run")
        super().__init__(problem, network, batch, sampling, precision, memory)
        grid = np.array(mesh_devices).reshape(shard.agents, -1)
        self.mesh = Mesh(grid, (AGENTS_AXIS, MODEL_AXIS))
        x, y = jax.eval_shape(lambda: problem.start(0))
        count = grid.shape[1]
        self.specs = {
            "x": (x, partition_specs(shard.x, x, count, "x")),
            "y": (y, partition_specs(shard.y, y, count, "y")),
        }
        self.agent_count = problem.agents
        self.objectives, self.working, self.rows = jax.tree.map(
            self._lay_out, (self.objectives, self.working, self.rows)
        )
        self.mixing = jax.device_put(self.mixing, NamedSharding(self.mesh, PartitionSpec()))
        problem.forget_stacked_rows()
        self.parallel_agents = problem.agents if shard.agents > 1 else self.parallel_agents
        self.budget = Budget(mesh_devices, memory)
        rounds = _donating_sharded_rounds if self.donates else _sharded_rounds
        self.rounds = MemoryBoundedProgram(rounds, problem.agents, self.budget, WORK, REMEDY)

    def initial_run_progress(self, algorithm: Algorithm, x: Tree, y: Tree) -> Progress:
        """Return the progress of all agents before round 0; only shards of it are allocated."""
        build = lambda x, y: initial_progress_with_links(
            algorithm, self.objectives, self.mixing, x, y
        )
        shardings = self.shardings(jax.eval_shape(build, x, y))
        progress: Progress = jax.jit(build, out_shardings=shardings)(x, y)
        return progress

    def scatter_progress(self, progress: Progress) -> Progress:
        copies = jax.tree.map(np.asarray, progress)
        placed: Progress = jax.tree.map(jax.device_put, copies, self.shardings(progress))
        return placed

    def scatter(self, tree: Tree) -> Tree:
        return jax.tree.map(self._lay_out, tree)

    def program_options(self, progress: Progress) -> dict[str, Any]:
        shardings = tuple(jax.tree.leaves(self.shardings(progress)))
        return super().program_options(progress) | {"shardings": shardings}

    def shardings(self, progress: Progress) -> Progress:
        """Return the sharding of every array of the progress.

        An array of the state that has the name and the shape of an array of y, as in z or in the
        moments of an optimizer, is sharded like it; other arrays along the agents only.
        """
        names = {
            (jax.tree_util.keystr(path), leaf.shape): spec
            for tree, specs in self.specs.values()
            for (path, leaf), spec in zip(
                jax.tree_util.tree_leaves_with_path(tree),
                jax.tree.leaves(specs, is_leaf=lambda a: isinstance(a, PartitionSpec)),
            )
        }

        def sharding_of(path: Any, leaf: Any) -> NamedSharding:
            name, shape = jax.tree_util.keystr(path), tuple(leaf.shape)
            if not shape or shape[0] != self.agent_count:
                return NamedSharding(self.mesh, PartitionSpec())
            matches = [
                (len(suffix), spec)
                for (suffix, inner), spec in names.items()
                if inner == shape[1:] and name.endswith(suffix)
            ]
            spec = max(matches, key=lambda match: match[0])[1] if matches else ()
            return NamedSharding(self.mesh, PartitionSpec(AGENTS_AXIS, *spec))

        shardings: Progress = jax.tree_util.tree_map_with_path(sharding_of, progress)
        return shardings

    def _lay_out(self, array: Any) -> jax.Array:
        """Put an array of all agents on the mesh, sharded along the agents."""
        is_per_agent = np.ndim(array) and np.shape(array)[0] == self.agent_count
        spec = PartitionSpec(AGENTS_AXIS) if is_per_agent else PartitionSpec()
        return jax.device_put(array, NamedSharding(self.mesh, spec))


def run_sharded_rounds(
    algorithm: Algorithm,
    problem: Objectives,
    mixer: Mixing,
    key: jax.Array,
    progress: Progress,
    until: jax.Array,
    sampling: Sampling,
    shardings: tuple[NamedSharding, ...],
    size: int | None = None,
) -> tuple[Progress, jax.Array]:
    """Run rounds like `run_rounds`, with the state sharded the same way after every round."""

    def constrain(progress: Progress) -> Progress:
        leaves, structure = jax.tree.flatten(progress)
        pairs = zip(leaves, shardings, strict=True)
        placed = [jax.lax.with_sharding_constraint(leaf, sharding) for leaf, sharding in pairs]
        return jax.tree.unflatten(structure, placed)

    after, is_finite = run_rounds_until(
        algorithm, problem, mixer, key, constrain(progress), until, sampling, size, constrain
    )
    return constrain(after), is_finite


_STATIC = ("sampling", "shardings", "size")
_sharded_rounds = compile_program(*_STATIC, options=MULTI_DEVICE_ROUND_OPTIONS)(run_sharded_rounds)
_donating_sharded_rounds = compile_program(
    *_STATIC, options=MULTI_DEVICE_ROUND_OPTIONS, donated=("progress",)
)(run_sharded_rounds)
