"""Mixing among some of the agents of a run, whose members change."""

from dataclasses import dataclass
from typing import Any

import jax

from diamond.core import pytrees
from diamond.core.sampling import ExchangeId

from .mixing_interface import Mixing


@pytrees.pytree
@dataclass(frozen=True)
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
