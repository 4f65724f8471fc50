"""Connections that have yet to prove who they are: few at a time, and not for long.

Where there are too many of one address, or of all, the oldest goes: a neighbour proves itself in
milliseconds, so a flood of silent connections cannot keep it out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

ALL, EACH = 64, 16  # of all addresses, and of one
SECONDS = 10.0  # for the proof


def affordable() -> int:
    """Of all addresses, where the process may have few files open."""
    try:
        import resource
    except ImportError:  # not on this system
        return ALL
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(4, min(ALL, allowed // 8))


@dataclass
class Gate:
    """Who stands there, by the order in which they came."""

    all: int = field(default_factory=affordable)
    each: int = EACH
    waiting: dict[int, tuple[str, Callable[[], None]]] = field(default_factory=dict)
    came: int = 0

    def enter(self, address: str, close: Callable[[], None]) -> int:
        """One more of that address, which `close` sends away; the number to `leave` by."""
        same = [number for number, (where, _) in self.waiting.items() if where == address]
        if len(same) >= self.each:
            self._out(same[0])
        elif len(self.waiting) >= self.all:
            self._out(next(iter(self.waiting)))
        self.came += 1
        self.waiting[self.came] = address, close
        return self.came

    def leave(self, number: int) -> None:
        """It has proved who it is, or is gone."""
        self.waiting.pop(number, None)

    def _out(self, number: int) -> None:
        _, close = self.waiting.pop(number)
        close()
