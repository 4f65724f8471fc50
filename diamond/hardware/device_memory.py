"""Memory limits: programs compute agents in groups if all do not fit the device."""

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

USABLE_SHARE = 0.9  # usable share of a device's memory; the rest is lost to fragmentation


class TooLarge(MemoryError):
    """Error: a run needs more memory than its device has."""


class MemoryNeed(NamedTuple):
    """The memory of a compiled program on each of its devices, in bytes."""

    held: int  # arguments: rows, states
    extra: int  # results and intermediate values


class Budget(NamedTuple):
    """Memory that a run may use."""

    devices: Sequence[jax.Device]
    limit: int | None = None  # bytes per device; None: all

    def left(self, held: int) -> int | None:
        """Return the free bytes per device beside `held` of arguments; None if unknown.

        With several processes it is the minimum over all, because all run one program.
        """
        local_devices = [d for d in self.devices if d.process_index == jax.process_index()]
        free = [
            free_bytes
            for d in local_devices
            if (free_bytes := self._left_on_device(d, held, len(local_devices))) is not None
        ]
        if len({d.process_index for d in self.devices}) == 1:
            return min(free, default=None)
        from jax.experimental.multihost_utils import process_allgather

        smallest = float(np.min(process_allgather(np.float32(min(free, default=np.inf)))))
        return None if np.isinf(smallest) else int(smallest)

    def _left_on_device(self, device: jax.Device, held: int, device_count: int) -> int | None:
        if self.limit is not None:
            return self.limit - held
        stats = device.memory_stats()
        if stats and "bytes_limit" in stats:
            return int(USABLE_SHARE * stats["bytes_limit"]) - held
        free = available_memory() if device.platform == "cpu" else None
        return None if free is None else free // device_count


class MemoryBoundedProgram:
    """A program of all agents, computed in groups if all agents do not fit the device.

    `program` has a static argument `size`, the number of agents in parallel, at least one. The
    memory need is XLA's report for the compiled program, which is the one that runs.
    """

    def __init__(self, program: Any, size: int, budget: Budget, work: str, remedy: str):
        self.program, self.size, self.budget = program, size, budget
        self.work, self.remedy = work, remedy
        self.memory_need: int | None = None  # bytes, including arguments, of the largest program
        self._sizes: dict[Any, int] = {}
        self._compiling: dict[Any, Future[Any]] = {}

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.program(
            *arguments, **options, size=self.wait_for_compiler(*arguments, **options)
        )

    def start_compiling(self, *arguments: Any, **options: Any) -> None:
        """Start to compile for such arguments in the background; `ready` waits for the result."""
        lowered = self.program.lower(*arguments, **options, size=self.size)
        pool = ThreadPoolExecutor(1)
        self._compiling[jax.tree.structure((arguments, options))] = pool.submit(lowered.compile)
        pool.shutdown(wait=False)

    def wait_for_compiler(self, *arguments: Any, **options: Any) -> int:
        """Compile for such arguments; return how many agents run in parallel."""
        structure = jax.tree.structure((arguments, options))
        if structure not in self._sizes:
            self._sizes[structure] = self._fit_group_size(
                arguments, options, self._compiling.pop(structure, None)
            )
        return self._sizes[structure]

    def _fit_group_size(self, arguments: Any, options: Any, compiling: Future[Any] | None) -> int:
        """Return how many agents run in parallel."""
        size = self.size
        while True:
            if compiling and size == self.size:
                memory = memory_need(compiling.result())
            else:
                memory = memory_need(self.program.lower(*arguments, **options, size=size).compile())
            left = self.budget.left(memory.held) if memory else None
            if memory is None or left is None or memory.extra <= left:
                break
            if size == 1 or left <= 0:
                raise TooLarge(self._too_large_message(memory, left, size))
            size = even_group_size(self.size, max(1, min(size // 2, size * left // memory.extra)))
        if memory:
            self.memory_need = max(self.memory_need or 0, sum(memory))
        if size < self.size:
            warnings.warn(
                f"{self.work} of {self.size} agents side by side does not fit the memory of the "
                f"device: they are taken {size} at a time, the same to rounding",
                RuntimeWarning,
                stacklevel=3,
            )
        return size

    def _too_large_message(self, memory: MemoryNeed, left: int, size: int) -> str:
        one_by_one = ", one agent at a time," if size == 1 else ""
        return (
            f"{self.work}{one_by_one} needs {format_bytes(sum(memory))} of memory on its device, "
            f"{format_bytes(memory.held)} of it for rows and states, but it can have "
            f"{format_bytes(max(0, memory.held + left))}: take {self.remedy}"
        )


def memory_need(compiled: Any) -> MemoryNeed | None:
    """Return XLA's memory report of a compiled program; None if there is none."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    results = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    extra = results + analysis.temp_size_in_bytes + analysis.generated_code_size_in_bytes
    return MemoryNeed(analysis.argument_size_in_bytes, extra)


def map_in_groups(function: Callable[..., Any], size: int | None) -> Callable[..., Any]:
    """Map `function` over all agents, `size` in parallel, all if None.

    One by one, on a CPU, the bits do not depend on the number of agents.
    """

    def map_agents(*agent_values: Any) -> Any:
        if size == 1:
            return jax.lax.map(lambda agent_values: function(*agent_values), agent_values)
        if size is None or size >= len(jax.tree.leaves(agent_values)[0]):
            return jax.vmap(function)(*agent_values)
        return jax.lax.map(
            lambda agent_values: function(*agent_values), agent_values, batch_size=size
        )

    return map_agents


def even_group_size(agents: int, maximum: int) -> int:
    """Return a group size of at most `maximum` that divides `agents` if a similar size does."""
    sizes = [size for size in range(maximum, maximum // 2, -1) if agents % size == 0]
    return sizes[0] if sizes else maximum


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the free bytes of memory of this machine or, if less, of this control group.

    None if unknown: the value is read from Linux's files below `root`.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {name: int(rest.split()[0]) for name, rest in (x.split(":", 1) for x in lines)}
    return min([1024 * kilobytes["MemAvailable"], *_control_group_memory(root)])


def _control_group_memory(root: Path) -> list[int]:
    """Return the free bytes of this process's control group and its parents (version 2)."""
    top = root / "sys/fs/cgroup"
    try:
        group_path = (root / "proc/self/cgroup").read_text().partition("0::/")[2].split("\n")[0]
    except OSError:
        return []
    free = []
    for folder in (top / group_path, *(top / group_path).parents):
        try:
            limit = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            stat = dict(x.split() for x in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # no such group, or no limit: "max"
            continue
        free.append(
            limit - used + int(stat.get("inactive_file", 0))
        )  # which the kernel can reclaim
    return free


def format_bytes(count: float) -> str:
    """Format bytes: 12 kB, 3.4 MB, 1.23 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
