"""Max-consensus: the network agrees on the maximum of numbers, one after another."""

import numpy as np

from ...schedules.deferred import MeasureFunction, Measurement


class NotAgreed(LookupError):
    """Error: the network must agree on a number before estimation continues."""

    def __init__(self, name: str, values: np.ndarray):
        super().__init__(name)
        self.name, self.values = name, values


class MaxConsensus:
    """Measurements of one agent, each made once, and the agreed maxima.

    Implements `diamond.schedules.deferred.Consensus`: estimation stops at the first number that is
    not agreed yet, and restarts once it is.
    """

    def __init__(self) -> None:
        self.measurements: dict[str, Measurement] = {}
        self.agreed: dict[str, np.ndarray] = {}

    def local(self, name: str, measure: MeasureFunction) -> Measurement:
        """Return this agent's measurement, made once."""
        if name not in self.measurements:
            self.measurements[name] = measure()
        return self.measurements[name]

    def maximum(self, name: str, measure: MeasureFunction) -> Measurement:
        """Return the agreed maximum; raises `NotAgreed` before."""
        (values,), cost = self.local(name, measure)
        if name not in self.agreed:
            raise NotAgreed(name, values)
        return self.agreed[name], cost
