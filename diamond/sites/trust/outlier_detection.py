"""Outlier detection among the neighbours' messages: outliers are counted and logged only.

d_j = ||s_j - s_i|| is the distance of the message of neighbour j to the agent's own, separately for
the averaged part (x) and the part whose total is kept (u). Over the last `WINDOW_ROUNDS` rounds,
the scale is the largest ||s_i||, and the usual distance is the largest median of the other
neighbours' distances (for a single neighbour: its own largest earlier distance). An outlier has

    d_j > WILD_FACTOR max(scale, usual)        in any round and part, or
    d_j > scale and d_j > FAR_FACTOR usual     for the averaged part, once `WINDOW_ROUNDS` rounds
                                               are known or if the others agree exactly, as they
                                               do at the start.

Among the outliers of one exchange, those WILD_FACTOR times nearer than the farthest are not
counted, since a false message also moves honest neighbours.

Sites agree on the averaged part, so a flipped sign or a constant stands out there. They do not
agree on trackers, which follow each site's own mini-batches, nor on anything in the first rounds,
when x has barely left the start. FAR_FACTOR and WILD_FACTOR were chosen by trial, above the
distances of honest sites whose rows differ; noisier rows may need more. Small falsifications are
not detected.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Sequence

import numpy as np

from ..transport.audit import Audit

FAR_FACTOR, WILD_FACTOR = 15.0, 300.0
HUGE = 1e30  # larger distances are outliers even if all else is zero
WINDOW_ROUNDS = 10  # remembered rounds
AVERAGED = 0  # the part of a message on which the sites agree in the end


def _window() -> deque[float]:
    return deque(maxlen=WINDOW_ROUNDS)


class OutlierDetector:
    """Outlier detector of an agent; `counts` has the outliers of each neighbour."""

    def __init__(self, sources: Sequence[int], own_index: int, names: Sequence[str], audit: Audit):
        self.sources, self.own_index, self.names, self.audit = sources, own_index, names, audit
        self.counts = {j: 0 for index, j in enumerate(sources) if index != own_index}
        # By exchange of the round, part and neighbour.
        self._scales: dict[tuple[int, int], deque[float]] = defaultdict(_window)
        self._usual_distances: dict[tuple[int, int, int], deque[float]] = defaultdict(_window)

    def detect_outliers(
        self,
        t: int,
        distances: np.ndarray,
        own_lengths: np.ndarray,
        absent: Collection[int] = (),
        exchange: int = 0,
    ) -> dict[int, str]:
        """Describe the outliers of exchange `exchange` of round t, by neighbour.

        `distances` has a row for each part of the message, `own_lengths` the length of each part
        of the agent's own. Neighbours in `absent` sent nothing: the agent's own message stands in.
        """
        outliers: dict[int, float] = {}  # in multiples of the usual distance
        excluded = {self.own_index, *(k for k, j in enumerate(self.sources) if j in absent)}
        for part, (row, own_length) in enumerate(zip(distances.tolist(), own_lengths.tolist())):
            scales = self._scales[exchange, part]
            scale = max(own_length, *scales) if scales else own_length
            is_window_full = len(scales) == WINDOW_ROUNDS
            scales.append(own_length)
            for index, j in enumerate(self.sources):
                if index in excluded:
                    continue
                distance, past_distances = row[index], self._usual_distances[exchange, part, j]
                others = sorted(d for k, d in enumerate(row) if k not in (index, *excluded))
                median = others[(len(others) - 1) // 2] if others else distance
                usual = max([*past_distances, *([median] if others else [])], default=0.0)
                bound = WILD_FACTOR * max(scale, usual) or HUGE
                if part == AVERAGED and (is_window_full or (others and usual == 0)):
                    bound = min(bound, max(scale, FAR_FACTOR * usual))
                if distance > bound:
                    times = distance / (usual or scale or 1.0)
                    outliers[j] = max(times, outliers.get(j, 0.0))
                    median = min(median, usual)
                past_distances.append(median)
        farthest = max(outliers.values(), default=0.0)
        descriptions = {
            j: f"is {times:.2g} times as far from this site's as is usual"
            for j, times in outliers.items()
            if not times < farthest / WILD_FACTOR
        }
        for j, description in descriptions.items():
            self.counts[j] += 1
            name, so_far = self.names[self.sources.index(j)], f"({self.counts[j]} such so far)"
            self.audit.record_event(name, f"its message of round {t} {description} {so_far}")
        return descriptions

    def describe_counts(self) -> list[str]:
        """Describe whose messages were outliers, and how many."""
        names = dict(zip(self.sources, self.names))
        return [f"{names[j]} has sent {n} absurd messages" for j, n in self.counts.items() if n]
