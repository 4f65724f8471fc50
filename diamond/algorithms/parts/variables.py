"""Variables of a round, and their directions."""

from typing import Any, NamedTuple

from ...core.pytrees import Tree

STATIC = {"static": True}  # marks a dataclass field as part of the program, not a number


class Point(NamedTuple):
    """x, y and, if a method has it, a third variable of the size of y; or their directions.

    z is [g_yy]^-1 f_y if it is a variable, or the second copy of y of a penalty method. None stands
    for a missing variable.
    """

    x: Tree = None
    y: Tree = None
    z: Tree = None

    def with_values(self, **new: Any) -> "Point":
        """Return the point with these variables replaced."""
        return self._replace(**new)

    def only(self, names: str) -> "Point":
        """Return only the variables in `names`; XLA then never computes the others."""
        return Point(*(part if name in names else None for name, part in zip("xyz", self)))


def merge_points(old: Point, new: Point) -> Point:
    """Return `new`, completed by `old`."""
    return Point(*(o if n is None else n for o, n in zip(old, new)))
