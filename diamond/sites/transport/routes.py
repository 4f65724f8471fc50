"""Routes: for every edge of a site, which end dials, and whether a relay lies between.

If both ends accept connections, each dials the other and asks on its own connection. If one end
does not, it dials, and both ends ask on that connection. If neither does, both dial a relay; the
end with the higher number is the client of the TLS connection through it.
"""

from typing import Literal, NamedTuple

from ..identity.roster import Bundle, Member

RouteKind = Literal["both", "dial", "await", "dial relay", "await relay"]


class Route(NamedTuple):
    """Way to one member: how its connection comes about, seen from this site."""

    member: Member
    kind: RouteKind

    @property
    def dials(self) -> bool:
        """Return whether this site opens the connection on which it asks."""
        return self.kind in ("both", "dial", "dial relay")

    @property
    def is_shared(self) -> bool:
        """Return whether both ends ask on one connection."""
        return self.kind != "both"

    @property
    def is_relayed(self) -> bool:
        """Return whether a relay lies between the two ends."""
        return self.kind in ("dial relay", "await relay")


def find_route(bundle: Bundle, member: Member) -> Route:
    """Return the route to a neighbour, or to the site itself, which is always dialed."""
    me = bundle.me
    if member.number == me.number or (me.address and member.address):
        return Route(member, "both")
    if member.address:
        return Route(member, "dial")
    if me.address:
        return Route(member, "await")
    return Route(member, "dial relay" if me.number > member.number else "await relay")


def describe_route(bundle: Bundle, member: Member) -> str:
    """Describe who dials on the edge to that neighbour."""
    me, kind = bundle.me, find_route(bundle, member).kind
    relays = ", ".join(bundle.roster.all_relays)
    return {
        "both": "both dial",
        "dial": f"{me.name} dials",
        "await": f"{member.name} dials",
        "dial relay": f"{me.name} dials through {relays}",
        "await relay": f"{member.name} dials through {relays}",
    }[kind]
