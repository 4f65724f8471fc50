"""The data of a run."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..core.pytrees import Tree
from ..core.sampling import Sampling
from ..interface.round_interface import State
from ..network import Network
from ..network.mixing.lost_messages import MessageCounts, count_lost_messages
from ..problem import Problem
from .best_point import BestPoint
from .cooperation import Cooperation
from .predictor import Predictor, problem_predictor
from .snapshot import Snapshot


@dataclass(frozen=True, repr=False)
class RunData:
    """Fields of a `Run`, which documents them; they are written into a folder."""

    last_x: Tree
    last_y: Tree
    history: dict[str, np.ndarray]
    per_agent: dict[str, np.ndarray]
    state: State
    rounds: int
    network: Network
    costs: dict[str, np.ndarray]
    traffic: dict[tuple[int, int], int]
    messages: int
    resolved: dict[str, float]
    sampling: Sampling
    seed: int
    compile_seconds: float
    best: BestPoint | None = None
    status: str = "finished"
    message: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    problem: Problem | None = None
    turns: tuple[int | None, ...] = ()  # exchanges of a round that send messages
    snapshot: Snapshot | None = None
    inputs: dict[str, dict[str, str]] = field(default_factory=dict)
    stored_predictor: Predictor | None = None
    cooperation: Cooperation | None = None

    @property
    def predictor(self) -> Predictor | None:
        """Return the predictor of the problem, or of the run folder; None if there is none."""
        if self.stored_predictor is None and self.problem is not None:
            return problem_predictor(self.problem)
        return self.stored_predictor

    @property
    def x(self) -> Tree:
        """Return x of all agents at the best evaluation; `last_x` if none is stored."""
        return self.last_x if self.best is None else self.best.x

    @property
    def y(self) -> Tree:
        """Return y of all agents at the best evaluation; `last_y` if none is stored."""
        return self.last_y if self.best is None else self.best.y

    @cached_property
    def lost_messages(self) -> dict[tuple[int, int], MessageCounts]:
        """Count messages `sent` and `lost` over each edge, both ways; empty if none can be lost."""
        return count_lost_messages(self.network, self.seed, self.rounds, self.turns)
