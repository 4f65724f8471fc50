"""Outlier detection among the neighbours' messages: outliers are counted and logged only.

d_j = ||s_j - s_i|| is the distance of the message of neighbour j to the agent's own, separately for
the averaged part (x) and the part whose total is kept (u). Over the last `ROUNDS` rounds, the scale
is the largest ||s_i||, and the usual distance is the largest median of the other neighbours'
distances (for a single neighbour: its own largest earlier distance). An outlier has

    d_j > WILD max(scale, usual)          in any round and part, or
    d_j > scale and d_j > FAR usual       for the averaged part, once `ROUNDS` rounds are known or
                                          if the others agree exactly, as they do at the start.

Among the outliers of one exchange, those WILD times nearer than the farthest are not counted, since
a false message also moves honest neighbours.

Sites agree on the averaged part, so a flipped sign or a constant stands out there. They do not
agree on trackers, which follow each site's own mini-batches, nor on anything in the first rounds,
when x has barely left the start. FAR and WILD were chosen by trial, above the distances of honest
sites whose rows differ; noisier rows may need more. Small falsifications are not detected.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Sequence

import numpy as np

from .audit import Audit

FAR, WILD = 15.0, 300.0
HUGE = 1e30  # larger distances are outliers even if all else is zero
ROUNDS = 10  # remembered rounds
AVERAGED = 0  # the part of a message on which the sites agree in the end


def _window() -> deque[float]:
    return deque(maxlen=ROUNDS)


class Suspicion:
    """Outlier detector of an agent; `counts` has the outliers of each neighbour."""

    def __init__(self, heard: Sequence[int], here: int, names: Sequence[str], audit: Audit):
        self.heard, self.here, self.names, self.audit = heard, here, names, audit
        self.counts = {j: 0 for place, j in enumerate(heard) if place != here}
        # By exchange of the round, part and neighbour.
        self._scales: dict[tuple[int, int], deque[float]] = defaultdict(_window)
        self._usual: dict[tuple[int, int, int], deque[float]] = defaultdict(_window)

    def look(
        self,
        t: int,
        spread: np.ndarray,
        own: np.ndarray,
        away: Collection[int] = (),
        turn: int = 0,
    ) -> dict[int, str]:
        """Describe the outliers of exchange `turn` of round t, by neighbour.

        `spread` has a row of distances for each part of the message, `own` the length of each part
        of the agent's own. Neighbours `away` sent nothing: the agent's own message stands in.
        """
        outliers: dict[int, float] = {}  # in multiples of the usual distance
        silent = {self.here, *(k for k, j in enumerate(self.heard) if j in away)}
        for part, (row, length) in enumerate(zip(spread.tolist(), own.tolist())):
            scales = self._scales[turn, part]
            scale = max(length, *scales) if scales else length
            known = len(scales) == ROUNDS
            scales.append(length)
            for place, j in enumerate(self.heard):
                if place in silent:
                    continue
                distance, past = row[place], self._usual[turn, part, j]
                others = sorted(d for k, d in enumerate(row) if k not in (place, *silent))
                median = others[(len(others) - 1) // 2] if others else distance
                usual = max([*past, *([median] if others else [])], default=0.0)
                bound = WILD * max(scale, usual) or HUGE
                if part == AVERAGED and (known or (others and usual == 0)):
                    bound = min(bound, max(scale, FAR * usual))
                if distance > bound:
                    times = distance / (usual or scale or 1.0)
                    outliers[j] = max(times, outliers.get(j, 0.0))
                    median = min(median, usual)
                past.append(median)
        farthest = max(outliers.values(), default=0.0)
        found = {
            j: f"is {times:.2g} times as far from this site's as is usual"
            for j, times in outliers.items()
            if not times < farthest / WILD
        }
        for j, description in found.items():
            self.counts[j] += 1
            name, so_far = self.names[self.heard.index(j)], f"({self.counts[j]} such so far)"
            self.audit.note(name, f"its message of round {t} {description} {so_far}")
        return found

    def told(self) -> list[str]:
        """Describe whose messages were outliers, and how many."""
        names = dict(zip(self.heard, self.names))
        return [f"{names[j]} has told {n} absurd messages" for j, n in self.counts.items() if n]
