"""Interface of mixers: what the network makes of the messages of all agents, or of its members."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import jax

from ...core import pytrees
from ...core.sampling import ExchangeId


class Mixing:
    """Communication step of a round. Required is `exchange`; exact means need `mean`."""

    has_states: ClassVar[bool] = False  # whether links and senders have states: `start`

    @property
    def identities(self) -> jax.Array | None:
        """Numbers of the agents, by which they draw; None: their places."""
        return None

    @property
    def skips(self) -> jax.Array | None:
        """Which agents skip which rounds, as (rounds, agents); None: nobody skips."""
        return None

    def start(self, messages: Sequence[Any]) -> Any:
        """Return the states before round 0; `messages`, as shapes, are those of each stage."""
        raise NotImplementedError

    def exchange(self, message: Any, exchange_id: ExchangeId, state: Any) -> tuple[Any, Any]:
        """Return the change of every agent's message, and the next states."""
        raise NotImplementedError

    if TYPE_CHECKING:  # a field of some mixers

        @property
        def mean(self) -> Any:
            """Function that returns the exact mean over all agents."""


@pytrees.pytree
class MemberMixer(Mixing):
    """Mixer of the members; `identities` are their numbers among all agents, which draws use."""

    mixing: Mixing
    identities: jax.Array | None = None

    def exchange(self, message: Any, exchange_id: ExchangeId, state: Any) -> tuple[Any, Any]:
        """Return the change of every member's message."""
        return self.mixing.exchange(message, exchange_id, state)

    def mean(self, tree: Any) -> Any:
        """Return the exact mean over the members."""
        return self.mixing.mean(tree)

    @property
    def skips(self) -> jax.Array | None:
        """Return which members skip which rounds, if any does."""
        return self.mixing.skips
