"""Assignment of agents to devices."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np


@dataclass(frozen=True)
class AgentSharding:
    """m agents over `devices` devices, `places_per_device` on every one, in order.

    Remaining places at the end are copies of the last agent: they have its rows, draws and
    messages, so they stay equal to it, and no agent hears them.
    """

    agents: int
    devices: int

    @property
    def places_per_device(self) -> int:
        """Places on a device."""
        return -(-self.agents // self.devices)

    @property
    def agent_at_place(self) -> np.ndarray:
        """Agent at each place."""
        return np.minimum(np.arange(self.devices * self.places_per_device), self.agents - 1)

    def agents_of_process(self, process: int, devices: Sequence[jax.Device]) -> np.ndarray:
        """Return the agents on the `devices` of a process."""
        is_local = np.array([device.process_index == process for device in devices])
        return np.unique(
            self.agent_at_place.reshape(self.devices, self.places_per_device)[is_local]
        )
