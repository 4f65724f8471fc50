"""Messages that are finite and still absurd: noticed, counted, and said.

d_j = ||s_j - s_i|| is how far the message of neighbour j is from the agent's own, of what is to be
averaged and of what keeps its total, each on its own. It is absurd if it is longer than the agent's
own message and

    FAR times the median of the others' d, or FAR times the most it was in the last rounds.

That is what a flipped sign, a constant, or numbers of 1e38 come to once the others nearly agree. A
neighbour that lies by little is not noticed: nothing here can tell it from one with other rows.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence

import numpy as np

from .audit import Audit

FAR = 20.0
ROUNDS = 10  # that are remembered
PARTS = 2  # of a message


class Suspicion:
    """Of an agent towards its neighbours: `counts` has the absurd messages of each."""

    def __init__(self, heard: Sequence[int], here: int, names: Sequence[str], audit: Audit):
        self.heard, self.here, self.names, self.audit = heard, here, names, audit
        self.counts = {j: 0 for place, j in enumerate(heard) if place != here}
        self._past: dict[int, list[deque[float]]] = {
            j: [deque(maxlen=ROUNDS) for _ in range(PARTS)] for j in self.counts
        }

    def look(
        self, t: int, spread: np.ndarray, own: np.ndarray, away: Collection[int] = ()
    ) -> dict[int, str]:
        """What is absurd in round t, by neighbour; `spread` has a row a part, `own` its length.

        Those `away` have said nothing: the agent's own message stands in their place.
        """
        found: dict[int, str] = {}
        rows, lengths = spread.tolist(), own.tolist()
        silent = {self.here, *(k for k, j in enumerate(self.heard) if j in away)}
        for place, j in enumerate(self.heard):
            if place == self.here or j in away:
                continue
            for row, length, past in zip(rows, lengths, self._past[j]):
                far = row[place]
                if far <= length:
                    past.append(far)
                    continue
                others = sorted(d for k, d in enumerate(row) if k not in (place, *silent))
                usual = others[(len(others) - 1) // 2] if others else math.inf
                before = max(past) if len(past) == ROUNDS else math.inf
                if far > FAR * min(usual, before):
                    whose = "the others'" if usual <= before else "its own before"
                    times = far / max(min(usual, before), 1e-30)
                    found[j] = f"is {times:.2g} times as far from this site's as {whose}"
                else:
                    past.append(far)
        for j, said in found.items():
            self.counts[j] += 1
            name = self.names[self.heard.index(j)]
            self.audit.note(name, f"its message of round {t} {said} ({self.counts[j]} such so far)")
        return found

    def told(self) -> list[str]:
        """Whose messages were absurd, and how many."""
        names = dict(zip(self.heard, self.names))
        return [f"{names[j]} has told {n} absurd messages" for j, n in self.counts.items() if n]
