"""Admission of unauthenticated connections: few at a time, and not for long.

If one address has too many, its oldest connection is closed. If there are too many in all, the
oldest of the address with most is closed: a neighbour has one, so it has time to authenticate
during a flood. Addresses that the roster lists for neighbours are counted separately, so no other
address can take their places.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_TOTAL, MAX_PER_ADDRESS = 64, 16
AUTHENTICATION_SECONDS = 10.0


def max_connections() -> int:
    """Return the maximum for all addresses, lower if the process may open few files."""
    try:
        import resource
    except ImportError:  # not available on this system
        return MAX_TOTAL
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(4, min(MAX_TOTAL, allowed // 8))


@dataclass
class AdmissionQueue:
    """Unauthenticated connections in order of arrival."""

    max_total: int = field(default_factory=max_connections)
    max_per_address: int = MAX_PER_ADDRESS
    pending: dict[int, tuple[str, Callable[[], object]]] = field(default_factory=dict)
    last_number: int = 0
    reserved: set[str] = field(default_factory=set)  # addresses of neighbours

    def add(self, address: str, close: Callable[[], object]) -> int:
        """Add a connection, which `close` closes; return its number for `remove`."""
        by_address: dict[str, list[int]] = {}
        for number, (other_address, _) in self.pending.items():
            by_address.setdefault(other_address, []).append(number)
        strangers = [ns for other, ns in by_address.items() if other not in self.reserved]
        if len(same_address := by_address.get(address, [])) >= self.max_per_address:
            self._evict(same_address[0])
        elif address not in self.reserved and sum(map(len, strangers)) >= self.max_total:
            self._evict(max(strangers, key=len)[0])
        self.last_number += 1
        self.pending[self.last_number] = address, close
        return self.last_number

    def remove(self, number: int) -> None:
        """Remove a connection that has authenticated or closed."""
        self.pending.pop(number, None)

    def _evict(self, number: int) -> None:
        _, close = self.pending.pop(number)
        close()
