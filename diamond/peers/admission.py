"""Admission of unauthenticated connections: few at a time, and not for long.

If one address has too many, its oldest connection is closed. If there are too many in all, the
oldest of the address with most is closed: a neighbour has one, so it has time to authenticate
during a flood. Addresses that the roster lists for neighbours are counted separately, so no other
address can take their places.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

ALL, EACH = 64, 16  # maximum of all addresses, and of one
SECONDS = 10.0  # for authentication


def affordable() -> int:
    """Return the maximum for all addresses, lower if the process may open few files."""
    try:
        import resource
    except ImportError:  # not available on this system
        return ALL
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(4, min(ALL, allowed // 8))


@dataclass
class Gate:
    """Unauthenticated connections in order of arrival."""

    all: int = field(default_factory=affordable)
    each: int = EACH
    waiting: dict[int, tuple[str, Callable[[], None]]] = field(default_factory=dict)
    came: int = 0
    reserved: set[str] = field(default_factory=set)  # addresses of neighbours

    def enter(self, address: str, close: Callable[[], None]) -> int:
        """Add a connection of that address, which `close` closes; return its number for `leave`."""
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
        """Remove a connection that has authenticated or closed."""
        self.waiting.pop(number, None)

    def _out(self, number: int) -> None:
        _, close = self.waiting.pop(number)
        close()
