"""What a node needs of the way to its neighbours, and what may come of a call."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .following import Following
    from .frame import Frame

REQUEST = 2**16 + 64  # bytes of a request, at most


class Unreachable(ConnectionError):
    """A neighbour that did not answer; it may be back soon."""


class Refused(PermissionError):
    """A neighbour that answered no; asking again is of no use."""


class Differs(Refused):
    """A neighbour that runs something else, as long as neither is started again."""


class Outdated(Refused):
    """A site that has an older roster than the asker; it will have the newer one soon."""


class Stopped(Refused):
    """A neighbour whose own run has failed for good, and so has everyone's."""


class Transport(Protocol):
    """Carries a request to a neighbour and its answer back."""

    async def call(self, neighbour: int, request: "Frame") -> "Frame":
        """The answer; raises `Unreachable` or `Refused`."""
        ...

    def follow(self, neighbour: int, request: "Frame", into: "Following") -> None:
        """Hand what comes of a standing order to `into`, which is ended if nothing more will."""
        ...
