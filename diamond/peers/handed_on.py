"""Arrays that a program would only copy: it leaves them out, and its caller puts them back in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from ..core import tree
from ..core.tree import Tree


@tree.pytree
@dataclass(frozen=True)
class Rest:
    """A tree without the arrays that its caller has; `places` says which of them each leaf is."""

    made: Sequence[Any]  # the other leaves
    places: tuple[int | None, ...] = field(metadata={"static": True})
    structure: Any = field(metadata={"static": True})

    def whole(self, given: Tree) -> Tree:
        """The tree, with arrays of `given` in their places."""
        made, own = iter(self.made), jax.tree.leaves(given)
        leaves = [next(made) if place is None else own[place] for place in self.places]
        return self.structure.unflatten(leaves)


def rest(whole: Tree, given: Tree) -> Rest:
    """`whole` without the leaves that are, as objects, leaves of `given`."""
    known = {id(leaf): place for place, leaf in enumerate(jax.tree.leaves(given))}
    leaves, structure = jax.tree.flatten(whole)
    places = tuple(known.get(id(leaf)) for leaf in leaves)
    made = [leaf for leaf, place in zip(leaves, places) if place is None]
    return Rest(made, places, structure)
