"""What cooperating is worth: scores of a run, of each agent alone, and of pooled rows."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .result_table import format_value

CLEAR = 2.0  # standard errors; a smaller difference may be chance
MOST_NAMED = 8  # agents in a sentence


@dataclass(frozen=True)
class Cooperation:
    """Scores of every agent on its own held-out rows.

    Attributes:
        measure: Name of the score.
        rows: "test" or "validation".
        agents: Names of the agents.
        together: Scores of the run.
        alone: Scores of models that each agent has learned from its own rows.
        pooled: Scores of one model of the rows of all agents.
        errors: Standard errors of the differences between together and alone.
        larger_is_better: Whether a larger score is better.
    """

    measure: str
    rows: str
    agents: list[str]
    together: list[float]
    alone: list[float]
    pooled: list[float]
    errors: list[float]
    larger_is_better: bool

    @property
    def gains(self) -> np.ndarray:
        """Return by how much each agent is better together than alone."""
        sign = 1 if self.larger_is_better else -1
        return sign * (np.array(self.together) - np.array(self.alone))

    @property
    def sentences(self) -> list[str]:
        """Say in two sentences what cooperating is worth."""
        kinds = {"together": self.together, "alone": self.alone, "from pooled rows": self.pooled}
        means = ", ".join(f"{np.mean(scores):.3g} {kind}" for kind, scores in kinds.items())
        better = "larger" if self.larger_is_better else "smaller"
        name = self.measure.replace("_", " ")
        first = f"Mean {name} on {self.rows} rows, {better} is better: {means}."
        return [first, f"Compared with learning alone: {self._describe_gains()}."]

    def _describe_gains(self) -> str:
        clear = np.abs(self.gains) > CLEAR * np.array(self.errors)
        signs = np.where(clear, np.sign(self.gains), 0)
        if len(self.agents) > MOST_NAMED:
            gaining, losing = (int(np.sum(signs == sign)) for sign in (1, -1))
            parts = [f"{gaining} of {len(self.agents)} agents gain", f"{losing} lose"]
        else:
            words = {1: "gains", -1: "loses"}
            parts = [
                f"{agent} {words[sign]} {format_value(abs(float(gain)))}"
                for agent, gain, sign in zip(self.agents, self.gains, signs)
                if sign
            ]
        if not signs.any():
            return "no agent differs by more than two standard errors"
        rest = [agent for agent, sign in zip(self.agents, signs) if not sign]
        if rest and len(self.agents) <= MOST_NAMED:
            parts.append(f"no difference beyond two standard errors for {', '.join(rest)}")
        return ", ".join(parts)

    def cells(self) -> list[list[str]]:
        """Return a table of the scores; its first line is the header."""
        scores = zip(self.together, self.alone, self.pooled)
        gains = [f"{g:.2g} ± {error:.1g}" for g, error in zip(self.gains, self.errors)]
        rows = [[a, *map(format_value, s), g] for a, s, g in zip(self.agents, scores, gains)]
        return [["agent", "together", "alone", "pooled", "gain of together over alone"], *rows]

    def to_json(self) -> dict[str, Any]:
        """Return the scores for a manifest."""
        return asdict(self)


def read_cooperation(answer: Mapping[str, Any] | None) -> Cooperation | None:
    """Return the scores in the answer of a manifest; None if there are none."""
    scores = (answer or {}).get("scores")
    return Cooperation(**scores) if scores else None
