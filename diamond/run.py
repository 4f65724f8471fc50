"""What a run leaves behind."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .algorithm import State
from .network import Network
from .sampling import Sampling
from .tree import Tree


@dataclass(frozen=True, repr=False)
class Run:
    """Final iterates, what was measured on the way, and what it cost.

    `history`: one entry an evaluation, round 0 included: `round`; the measures of
    `diamond.measure`; `samples`, `gradients`, `hvps`, `jvps` (oracle calls in rows, mean over the
    agents); `bytes` (sent over all edges, both ways); `curvature` (the largest
    eigenvalue of g_yy on a few mini-batches there); `seconds` (of the rounds alone, without
    compiling and measuring). `agents`: the measures that each agent has of its own, (evaluations,
    agents). `costs`: the final counts of every agent. `traffic`: bytes sent over each edge, both
    ways together. `resolved`: numbers that were left to the run to find (L_g, ...).
    """

    x: Tree
    y: Tree
    history: dict[str, np.ndarray]
    agents: dict[str, np.ndarray]
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

    def __repr__(self) -> str:
        last: dict[str, Any] = {k: v[-1] for k, v in self.history.items()}
        said = ", ".join(f"{name} {last[name]:.4g}" for name in ("metric", "upper_loss"))
        return f"<Run: {self.rounds} rounds of {self.network.agents} agents, {said}>"
