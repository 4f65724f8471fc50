"""Output aliasing: a program omits arrays that it would only copy; its caller restores them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from ..core import pytrees
from ..core.pytrees import Tree


@pytrees.pytree
@dataclass(frozen=True)
class Rest:
    """Tree without the arrays that its caller has; `places` maps each leaf to one of them."""

    made: Sequence[Any]  # other leaves
    places: tuple[int | None, ...] = field(metadata={"static": True})
    structure: Any = field(metadata={"static": True})

    def whole(self, given: Tree) -> Tree:
        """Rebuild the tree with arrays of `given` in their places."""
        made, own = iter(self.made), jax.tree.leaves(given)
        leaves = [next(made) if place is None else own[place] for place in self.places]
        return self.structure.unflatten(leaves)


def rest(whole: Tree, given: Tree) -> Rest:
    """Return `whole` without the leaves that are the same objects as leaves of `given`."""
    known = {id(leaf): place for place, leaf in enumerate(jax.tree.leaves(given))}
    leaves, structure = jax.tree.flatten(whole)
    places = tuple(known.get(id(leaf)) for leaf in leaves)
    made = [leaf for leaf, place in zip(leaves, places) if place is None]
    return Rest(made, places, structure)
