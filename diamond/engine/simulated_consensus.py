"""Exchange of numbers that each process measures on its own agents."""

from collections.abc import Sequence

import numpy as np

from ..core.cost_counter import Cost
from ..hardware.processes import everyone
from ..schedules.deferred import Measure, Measured


class GatherConsensus:
    """A `diamond.schedules.deferred.Consensus` between processes; `whose` lists each one's agents."""

    def __init__(self, whose: Sequence[np.ndarray]):
        self.whose = whose

    def local(self, name: str, measure: Measure) -> Measured:
        """Return the local values of all agents."""
        values, cost = measure()
        return self._all(values), self._costs(cost)

    def maximum(self, name: str, measure: Measure) -> Measured:
        """Return the maximum of each number over all agents."""
        values, cost = measure()
        most = np.max(values, axis=0)
        heard = [np.frombuffer(said, most.dtype) for said in everyone(most.tobytes())]
        return np.max(heard, axis=0), self._costs(cost)

    def _all(self, values: np.ndarray) -> np.ndarray:
        """Gather the rows of all agents from the processes."""
        each = values.shape[1:]
        found = np.empty((1 + max(map(np.max, self.whose)), *each), values.dtype)
        for agents, said in zip(self.whose, everyone(values.tobytes())):
            found[agents] = np.frombuffer(said, values.dtype).reshape(-1, *each)
        return found

    def _costs(self, cost: Cost) -> Cost:
        """Gather the costs of all agents from the processes."""
        own = [count for count in cost if np.ndim(count)]
        told = iter(self._all(np.stack(own, axis=1)).T if own else ())
        return Cost(*(next(told) if np.ndim(count) else count for count in cost))
