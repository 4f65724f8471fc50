"""Variables of a round, and what each of them moves along."""

from typing import Any, NamedTuple

from ...core.tree import Tree

STATIC = {"static": True}  # of a dataclass field that is part of the program, not a number


class Point(NamedTuple):
    """x, y and, where a method has it, a third variable of the size of y; or a direction of each.

    z is [g_yy]^-1 f_y where it is carried along, or the second copy of y of a penalty method.
    None stands for what is not there.
    """

    x: Tree = None
    y: Tree = None
    z: Tree = None

    def put(self, **new: Any) -> "Point":
        """The same with these in their places."""
        return self._replace(**new)

    def only(self, names: str) -> "Point":
        """What `names` asks for; what else was written down is never computed."""
        return Point(*(part if name in names else None for name, part in zip("xyz", self)))


def over(old: Point, new: Point) -> Point:
    """`new`, and what of `old` it does not have."""
    return Point(*(o if n is None else n for o, n in zip(old, new)))
