"""Exchange of numbers that each process measures on its own agents."""

from collections.abc import Sequence

import numpy as np

from ..core.cost_counter import Cost
from ..hardware.processes import gather_messages
from ..schedules.deferred import MeasureFunction, Measurement


class GatherConsensus:
    """A `diamond.schedules.deferred.Consensus` between processes."""

    def __init__(self, agents_of_process: Sequence[np.ndarray]):
        self.agents_of_process = agents_of_process

    def local(self, name: str, measure: MeasureFunction) -> Measurement:
        """Return the local values of all agents."""
        values, cost = measure()
        return self._gather_rows(values), self._gather_costs(cost)

    def maximum(self, name: str, measure: MeasureFunction) -> Measurement:
        """Return the maximum of each number over all agents."""
        values, cost = measure()
        local_maximum = np.max(values, axis=0)
        maxima = [
            np.frombuffer(message, local_maximum.dtype)
            for message in gather_messages(local_maximum.tobytes())
        ]
        return np.max(maxima, axis=0), self._gather_costs(cost)

    def _gather_rows(self, values: np.ndarray) -> np.ndarray:
        """Gather the rows of all agents from the processes."""
        shape = values.shape[1:]
        gathered = np.empty((1 + max(map(np.max, self.agents_of_process)), *shape), values.dtype)
        for agents, message in zip(self.agents_of_process, gather_messages(values.tobytes())):
            gathered[agents] = np.frombuffer(message, values.dtype).reshape(-1, *shape)
        return gathered

    def _gather_costs(self, cost: Cost) -> Cost:
        """Gather the costs of all agents from the processes."""
        local_counts = [count for count in cost if np.ndim(count)]
        gathered = iter(self._gather_rows(np.stack(local_counts, axis=1)).T if local_counts else ())
        return Cost(*(next(gathered) if np.ndim(count) else count for count in cost))
