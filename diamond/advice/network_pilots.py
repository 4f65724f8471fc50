"""Advice where y*(x) is not solved for: pilots are compared by the upper loss at the agents' y."""

import math
from typing import NamedTuple

import jax
import numpy as np

from ..auto.adaptive_optimizers import adam_rate
from ..catalogue import methods_for
from ..hardware.device_memory import format_bytes
from ..problem import Problem
from ..records.run import Run

METHODS = ("solve", "f2sa_fused", "bome", "meha")  # gradients only, no strong convexity
REACHED = 0.95  # share of the best pilot's decrease of the upper loss that is the target


class NetworkFacts(NamedTuple):
    """Size and memory of a lower level that is large or not strongly convex."""

    numbers: int  # in y of an agent
    is_convex: bool
    memory: dict[str, int]  # bytes of an agent's state and gradients, by method

    def reasons(self, best: str) -> list[str]:
        """Explain the choice of first-order methods."""
        kind = "is large" if self.is_convex else "is not strongly convex"
        reasons = [
            f"the lower level {kind} ({self.numbers:,} numbers), so only methods with gradients "
            f"were tried, and runs are measured without y*(x) (measure='cheap')",
            f"steps that are not given are learned: Adam with rate {adam_rate(self.numbers):.2g} "
            f"for y, distance over gradients for x",
        ]
        if best in self.memory:
            reasons.append(
                f"it holds {format_bytes(self.memory[best])} per agent, activations not counted"
            )
        return reasons


def network_methods(level: str, kind: str) -> list[str]:
    """List the methods to try for this lower level and kind of network."""
    return [name for name in METHODS if name in methods_for(level, kind)]


def loss_target(runs: dict[str, Run | None]) -> float:
    """Return the upper loss at `REACHED` of the largest decrease of a pilot."""
    losses = [run.history["upper_loss"] for run in runs.values() if run is not None]
    lowest = min((float(np.nanmin(loss)) for loss in losses), default=math.inf)
    if not math.isfinite(lowest):
        raise ValueError(
            "no pilot ended with a finite upper loss: each diverged with the steps learned for it; "
            "are the losses finite and smooth at the start?"
        )
    first = float(losses[0][0])
    return first - REACHED * (first - lowest)


def rounds_to_loss(run: Run, target: float) -> float:
    """Return the round of the first evaluation at or below `target`; infinite if there is none."""
    reached = run.history["upper_loss"] <= target
    return float(run.history["round"][np.argmax(reached)]) if reached.any() else math.inf


def network_facts(problem: Problem, runs: dict[str, Run | None]) -> NetworkFacts:
    """Return the facts for the explanation, from the final states of the pilots."""
    size = lambda tree: int(sum(leaf.nbytes for leaf in jax.tree.leaves(tree))) // problem.agents
    memory = {
        name: size(run.state) + 2 * size(run.last_y)  # and two gradients of y
        for name, run in runs.items()
        if run is not None
    }
    return NetworkFacts(problem.lower_size, problem.convex, memory)
