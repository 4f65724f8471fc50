"""Programs that fit their device: what they need, what there is, agents in groups if need be."""

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

SHARE = 0.9  # of a device's memory for one program and its arguments; the rest is lost in gaps


class TooLarge(MemoryError):
    """A run needs more memory than its device has."""


class Need(NamedTuple):
    """The memory of a compiled program on each of its devices, in bytes."""

    held: int  # its arguments: rows, states
    more: int  # results and intermediate values, while it runs


class Budget(NamedTuple):
    """The memory that a run may have."""

    devices: Sequence[jax.Device]
    given: int | None = None  # bytes of each; None: what there is

    def left(self, held: int) -> int | None:
        """Bytes of each device beside `held` of arguments; None where that cannot be told.

        Devices of several processes have what the poorest of them has: all run one program.
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
    """A program of all agents, taken in groups where all side by side do not fit the device.

    `program` has a static argument `size`, how many to take side by side; the least that it may do
    is one. What it needs is XLA's account of the compiled program, the very one that then runs.
    """

    def __init__(self, program: Any, size: int, budget: Budget, work: str, remedy: str):
        self.program, self.size, self.budget = program, size, budget
        self.work, self.remedy = work, remedy
        self.need: int | None = None  # bytes, arguments included, of the largest program made
        self._sizes: dict[Any, int] = {}
        self._begun: dict[Any, Future[Any]] = {}

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.program(*given, **named, size=self.ready(*given, **named))

    def begin(self, *given: Any, **named: Any) -> None:
        """Compile for such arguments while other things go on; `ready` waits for it."""
        lowered = self.program.lower(*given, **named, size=self.size)
        pool = ThreadPoolExecutor(1)
        self._begun[jax.tree.structure((given, named))] = pool.submit(lowered.compile)
        pool.shutdown(wait=False)

    def ready(self, *given: Any, **named: Any) -> int:
        """Compiled for such arguments: how many agents it takes side by side."""
        kind = jax.tree.structure((given, named))
        if kind not in self._sizes:
            self._sizes[kind] = self._fit(given, named, self._begun.pop(kind, None))
        return self._sizes[kind]

    def _fit(self, given: Any, named: Any, begun: Future[Any] | None) -> int:
        """How many agents to take side by side."""
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
    """XLA's account of a compiled program; None where it keeps none."""
    found = compiled.memory_analysis()
    if found is None:
        return None
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    more = results + found.temp_size_in_bytes + found.generated_code_size_in_bytes
    return Need(found.argument_size_in_bytes, more)


def grouped(alone: Callable[..., Any], size: int | None) -> Callable[..., Any]:
    """`alone` for every agent, `size` of them side by side, all if None.

    One by one, on a CPU, each comes out in the same bits however many they are.
    """

    def each(*own: Any) -> Any:
        if size == 1:
            return jax.lax.map(lambda own: alone(*own), own)
        if size is None or size >= len(jax.tree.leaves(own)[0]):
            return jax.vmap(alone)(*own)
        return jax.lax.map(lambda own: alone(*own), own, batch_size=size)

    return each


def even(agents: int, most: int) -> int:
    """A size of groups, at most `most`, that divides `agents` if one not much smaller does."""
    sizes = [size for size in range(most, most // 2, -1) if agents % size == 0]
    return sizes[0] if sizes else most


def available(root: Path = Path("/")) -> int | None:
    """Bytes of memory that this machine or, if less, this process's control group has left.

    None where the system does not say: it is read from Linux's files below `root`.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {name: int(rest.split()[0]) for name, rest in (x.split(":", 1) for x in lines)}
    return min([1024 * kilobytes["MemAvailable"], *_groups(root)])


def _groups(root: Path) -> list[int]:
    """What is left to the control group of this process, and to those around it (version 2)."""
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
        left.append(most - used + int(stat.get("inactive_file", 0)))  # which gives way
    return left


def bytes_in_words(count: float) -> str:
    """Bytes in words: 12 kB, 3.4 MB, 1.23 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
