"""Memory limits: programs compute agents in groups if all do not fit the device."""

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

SHARE = 0.9  # usable share of a device's memory; the rest is lost to fragmentation


class TooLarge(MemoryError):
    """Error: a run needs more memory than its device has."""


class Need(NamedTuple):
    """The memory of a compiled program on each of its devices, in bytes."""

    held: int  # arguments: rows, states
    more: int  # results and intermediate values


class Budget(NamedTuple):
    """Memory that a run may use."""

    devices: Sequence[jax.Device]
    given: int | None = None  # bytes per device; None: all

    def left(self, held: int) -> int | None:
        """Return the free bytes per device beside `held` of arguments; None if unknown.

        With several processes it is the minimum over all, because all run one program.
        """
        here = [d for d in self.devices if d.process_index == jax.process_index()]
        known = [found for d in here if (found := self._of(d, held, len(here))) is not None]
        if len({d.process_index for d in self.devices}) == 1:
            return min(known, default=None)
        from jax.experimental.multihost_utils import process_allgather

        poorest = float(np.min(process_allgather(np.float32(min(known, default=np.inf)))))
        return None if np.isinf(poorest) else int(poorest)

    def _of(self, device: jax.Device, held: int, sharing: int) -> int | None:
        if self.given is not None:
            return self.given - held
        stats = device.memory_stats()
        if stats and "bytes_limit" in stats:
            return int(SHARE * stats["bytes_limit"]) - held
        there = available() if device.platform == "cpu" else None
        return None if there is None else there // sharing


class Fitted:
    """A program of all agents, computed in groups if all agents do not fit the device.

    `program` has a static argument `size`, the number of agents in parallel, at least one. The
    memory need is XLA's report for the compiled program, which is the one that runs.
    """

    def __init__(self, program: Any, size: int, budget: Budget, work: str, remedy: str):
        self.program, self.size, self.budget = program, size, budget
        self.work, self.remedy = work, remedy
        self.need: int | None = None  # bytes, including arguments, of the largest program
        self._sizes: dict[Any, int] = {}
        self._begun: dict[Any, Future[Any]] = {}

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.program(*given, **named, size=self.ready(*given, **named))

    def begin(self, *given: Any, **named: Any) -> None:
        """Start to compile for such arguments in the background; `ready` waits for the result."""
        lowered = self.program.lower(*given, **named, size=self.size)
        pool = ThreadPoolExecutor(1)
        self._begun[jax.tree.structure((given, named))] = pool.submit(lowered.compile)
        pool.shutdown(wait=False)

    def ready(self, *given: Any, **named: Any) -> int:
        """Compile for such arguments; return how many agents run in parallel."""
        kind = jax.tree.structure((given, named))
        if kind not in self._sizes:
            self._sizes[kind] = self._fit(given, named, self._begun.pop(kind, None))
        return self._sizes[kind]

    def _fit(self, given: Any, named: Any, begun: Future[Any] | None) -> int:
        """Return how many agents run in parallel."""
        size = self.size
        while True:
            if begun and size == self.size:
                found = need(begun.result())
            else:
                found = need(self.program.lower(*given, **named, size=size).compile())
            left = self.budget.left(found.held) if found else None
            if found is None or left is None or found.more <= left:
                break
            if size == 1 or left <= 0:
                raise TooLarge(self._refusal(found, left, size))
            size = even(self.size, max(1, min(size // 2, size * left // found.more)))
        if found:
            self.need = max(self.need or 0, sum(found))
        if size < self.size:
            warnings.warn(
                f"{self.work} of {self.size} agents side by side does not fit the memory of the "
                f"device: they are taken {size} at a time, the same to rounding",
                RuntimeWarning,
                stacklevel=3,
            )
        return size

    def _refusal(self, found: Need, left: int, size: int) -> str:
        each = ", one agent at a time," if size == 1 else ""
        return (
            f"{self.work}{each} needs {bytes_in_words(sum(found))} of memory on its device, "
            f"{bytes_in_words(found.held)} of it for rows and states, but it can have "
            f"{bytes_in_words(max(0, found.held + left))}: take {self.remedy}"
        )


def need(compiled: Any) -> Need | None:
    """Return XLA's memory report of a compiled program; None if there is none."""
    found = compiled.memory_analysis()
    if found is None:
        return None
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    more = results + found.temp_size_in_bytes + found.generated_code_size_in_bytes
    return Need(found.argument_size_in_bytes, more)


def grouped(alone: Callable[..., Any], size: int | None) -> Callable[..., Any]:
    """Map `alone` over all agents, `size` in parallel, all if None.

    One by one, on a CPU, the bits do not depend on the number of agents.
    """

    def each(*own: Any) -> Any:
        if size == 1:
            return jax.lax.map(lambda own: alone(*own), own)
        if size is None or size >= len(jax.tree.leaves(own)[0]):
            return jax.vmap(alone)(*own)
        return jax.lax.map(lambda own: alone(*own), own, batch_size=size)

    return each


def even(agents: int, most: int) -> int:
    """Return a group size of at most `most` that divides `agents` if a similar size does."""
    sizes = [size for size in range(most, most // 2, -1) if agents % size == 0]
    return sizes[0] if sizes else most


def available(root: Path = Path("/")) -> int | None:
    """Return the free bytes of memory of this machine or, if less, of this control group.

    None if unknown: the value is read from Linux's files below `root`.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {name: int(rest.split()[0]) for name, rest in (x.split(":", 1) for x in lines)}
    return min([1024 * kilobytes["MemAvailable"], *_groups(root)])


def _groups(root: Path) -> list[int]:
    """Return the free bytes of this process's control group and its parents (version 2)."""
    top = root / "sys/fs/cgroup"
    try:
        own = (root / "proc/self/cgroup").read_text().partition("0::/")[2].split("\n")[0]
    except OSError:
        return []
    left = []
    for folder in (top / own, *(top / own).parents):
        try:
            most = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            stat = dict(x.split() for x in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # no such group, or no limit: "max"
            continue
        left.append(most - used + int(stat.get("inactive_file", 0)))  # which the kernel can reclaim
    return left


def bytes_in_words(count: float) -> str:
    """Format bytes: 12 kB, 3.4 MB, 1.23 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
