"""Output aliasing: a program omits arrays that it would only copy; its caller restores them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from ..core import pytrees
from ..core.pytrees import Tree


@pytrees.pytree
@dataclass(frozen=True)
class PrunedTree:
    """Tree without the arrays that its caller has; `places` maps each leaf to one of them."""

    new_leaves: Sequence[Any]  # other leaves
    places: tuple[int | None, ...] = field(metadata={"static": True})
    structure: Any = field(metadata={"static": True})

    def restore(self, inputs: Tree) -> Tree:
        """Rebuild the tree with arrays of `inputs` in their places."""
        new_leaves, input_leaves = iter(self.new_leaves), jax.tree.leaves(inputs)
        leaves = [
            next(new_leaves) if place is None else input_leaves[place] for place in self.places
        ]
        return self.structure.unflatten(leaves)


def prune_leaves(tree: Tree, inputs: Tree) -> PrunedTree:
    """Return `tree` without the leaves that are the same objects as leaves of `inputs`."""
    input_places = {id(leaf): place for place, leaf in enumerate(jax.tree.leaves(inputs))}
    leaves, structure = jax.tree.flatten(tree)
    places = tuple(input_places.get(id(leaf)) for leaf in leaves)
    new_leaves = [leaf for leaf, place in zip(leaves, places) if place is None]
    return PrunedTree(new_leaves, places, structure)
