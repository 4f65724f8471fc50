"""Connections that have yet to prove who they are: few at a time, and not for long.

Where there are too many of one address, its oldest goes. Where there are too many of all, the
oldest of the address that has most goes: a neighbour has one, so it has the time to prove itself
while others flood. Addresses that the roster gives for neighbours are counted by themselves, so no
other address can take their places.
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
    reserved: set[str] = field(default_factory=set)  # addresses of neighbours

    def enter(self, address: str, close: Callable[[], None]) -> int:
        """One more of that address, which `close` sends away; the number to `leave` by."""
        by_address: dict[str, list[int]] = {}
        for number, (where, _) in self.waiting.items():
            by_address.setdefault(where, []).append(number)
        strangers = [each for where, each in by_address.items() if where not in self.reserved]
        if len(same := by_address.get(address, [])) >= self.each:
            self._out(same[0])
        elif address not in self.reserved and sum(map(len, strangers)) >= self.all:
            self._out(max(strangers, key=len)[0])
        self.came += 1
        self.waiting[self.came] = address, close
        return self.came

    def leave(self, number: int) -> None:
        """It has proved who it is, or is gone."""
        self.waiting.pop(number, None)

    def _out(self, number: int) -> None:
        _, close = self.waiting.pop(number)
        close()
