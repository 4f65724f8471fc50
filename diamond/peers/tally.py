"""Numbers that the network settles by talk, one after another: the largest that any agent has."""

from collections.abc import Callable

import numpy as np

from ..deferred import Measured


class Unsettled(LookupError):
    """A number that the network has to talk about before anything more can be found."""

    def __init__(self, name: str, values: np.ndarray):
        super().__init__(name)
        self.name, self.values = name, values


class Tally:
    """What one agent has measured, each thing once, and what the network has settled.

    Stands for the largest over all agents in `diamond.deferred.Setting`: finding numbers from it
    stops at the first that is not settled yet, and is begun again once it is.
    """

    def __init__(self) -> None:
        self.own: dict[str, Measured] = {}
        self.settled: dict[str, np.ndarray] = {}

    def __call__(self, name: str, measure: Callable[[], Measured]) -> Measured:
        if name not in self.own:
            self.own[name] = measure()
        (values,), cost = self.own[name]
        if name not in self.settled:
            raise Unsettled(name, values)
        return self.settled[name], cost
