"""Which agents sit on which device."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np


@dataclass(frozen=True)
class AgentSharding:
    """m agents over `parts` devices, `each` on every one, in their order.

    Places left over at the end are filled by copies of the last agent: they have its rows and its
    draws and hear what it hears, so they stay the same as it, and nobody hears them.
    """

    agents: int
    parts: int

    @property
    def each(self) -> int:
        """Places on a device."""
        return -(-self.agents // self.parts)

    @property
    def places(self) -> np.ndarray:
        """Which agent sits at each place."""
        return np.minimum(np.arange(self.parts * self.each), self.agents - 1)

    def of(self, process: int, devices: Sequence[jax.Device]) -> np.ndarray:
        """The agents on those of `devices` that are a process's."""
        own = np.array([device.process_index == process for device in devices])
        return np.unique(self.places.reshape(self.parts, self.each)[own])
