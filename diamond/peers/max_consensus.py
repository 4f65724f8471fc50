"""Numbers that the network settles by talk, one after another: the largest that any agent has."""

import numpy as np

from ..numbers.open_numbers import Measure, Measured


class Unsettled(LookupError):
    """A number that the network has to talk about before anything more can be found."""

    def __init__(self, name: str, values: np.ndarray):
        super().__init__(name)
        self.name, self.values = name, values


class MaxConsensus:
    """What one agent has measured, each thing once, and what the network has settled.

    A `diamond.numbers.open_numbers.Talk`: finding numbers stops at the first that is not settled
    yet, and is begun again once it is.
    """

    def __init__(self) -> None:
        self.own: dict[str, Measured] = {}
        self.settled: dict[str, np.ndarray] = {}

    def alone(self, name: str, measure: Measure) -> Measured:
        """What this agent measures, once."""
        if name not in self.own:
            self.own[name] = measure()
        return self.own[name]

    def largest(self, name: str, measure: Measure) -> Measured:
        """What was settled; raises `Unsettled` before."""
        (values,), cost = self.alone(name, measure)
        if name not in self.settled:
            raise Unsettled(name, values)
        return self.settled[name], cost
