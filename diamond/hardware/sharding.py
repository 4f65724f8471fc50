"""Assignment of agents to devices."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np


@dataclass(frozen=True)
class AgentSharding:
    """m agents over `parts` devices, `each` on every one, in order.

    Remaining places at the end are copies of the last agent: they have its rows, draws and
    messages, so they stay equal to it, and no agent hears them.
    """

    agents: int
    parts: int

    @property
    def each(self) -> int:
        """Places on a device."""
        return -(-self.agents // self.parts)

    @property
    def places(self) -> np.ndarray:
        """Agent at each place."""
        return np.minimum(np.arange(self.parts * self.each), self.agents - 1)

    def of(self, process: int, devices: Sequence[jax.Device]) -> np.ndarray:
        """Return the agents on the `devices` of a process."""
        own = np.array([device.process_index == process for device in devices])
        return np.unique(self.places.reshape(self.parts, self.each)[own])
