"""How a direction p of the upper level moves x over the network, in one exchange a round."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from .. import tree
from ..schedule import Number
from ..steps import Order
from ..tree import Tree


class Shared(NamedTuple):
    """What an agent tells its neighbours, and what the network makes of it."""

    x: Tree
    u: Tree | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Consensus:
    """With `tracking`, u_t = sum_j M_ij u_{j,t-1} + p_t - p_{t-1} (8); without, u_t = p_t.

        "paper":  x_{t+1} = sum_j M_ij x_{j,t} - alpha_t u_t (9); tells x_t and u_{t-1}
        "atc":    x_{t+1} = sum_j M_ij (x_{j,t} - alpha_t u_{j,t}); tells x_t - alpha_t u_t and u_t

    "atc" (adapt, then combine) has the same fixed point and traffic and allows larger steps, but
    its message must wait for the gradients. The u that is kept is u_{t-1} in the paper's order
    and sum_j M_ij u_{j,t-1} in the other, so both need one exchange a round.
    """

    order: Order = field(metadata={"static": True})
    tracking: bool = field(metadata={"static": True})

    def __post_init__(self) -> None:
        if self.order not in ("paper", "atc"):
            raise ValueError(f"no order {self.order!r}; there are 'paper' and 'atc'")

    @property
    def early(self) -> bool:
        """Whether the message is known before the gradients of the round."""
        return self.order == "paper"

    def message(self, state: Any, estimate: Any, step: Number) -> Shared:
        """What is told in round t, from x_t, the u that is kept and p_{t-1} of `state`."""
        if self.early:
            return Shared(state.x, state.u)
        u = self._direction(state.u, estimate[0], state.p)
        return Shared(tree.axpy(-step, u, state.x), u if self.tracking else None)

    def moved(self, state: Any, estimate: Any, mixed: Shared, step: Number) -> Shared:
        """x_{t+1} and the u to keep, from what the network made of the messages."""
        if not self.early:
            return mixed
        u = self._direction(mixed.u, estimate[0], state.p)
        return Shared(tree.axpy(-step, u, mixed.x), u if self.tracking else None)

    def _direction(self, mixed: Tree | None, p: Tree, old: Tree | None) -> Tree:
        return tree.add(mixed, tree.sub(p, old)) if self.tracking else p
