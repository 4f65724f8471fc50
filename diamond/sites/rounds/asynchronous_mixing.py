"""Mixing in asynchronous rounds: with the messages that have arrived, each site at its own pace.

Averages are the last received ones. Totals travel as running sums, one for each direction of a
link, so that messages may be lost, late or merged:

    s_ij     sum of the totals that i has given to j, sent with every message
    s'_ij    the last of these sums that j has used

    u_i <- u_i + sum_j M_ij (s_ji - s'_ji) - sum_j M_ij (increase of s_ij)

No total is lost or doubled: sum_i u_i + sum_ij M_ij (s_ij - s'_ij) is what it would be without
links. What rounding keeps out of s_ij stays with i.

A method with totals uses a link once for each new message: in a round without one, i gives j
nothing and mixes with its own average in place of j's, so that a slow or absent site neither
hoards totals nor holds the others back. The totals lead all sites to the same solution at any
pace. A method without totals has nothing that would correct unequal use of the links: it mixes
with the last message in every round, and its fixed point is that of rounds in step.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ...interface.round_interface import Message
from ..transport import wire_format
from ..transport.wire_format import Envelope, Frame, Layout

Arrays = Sequence[Any]


class LinkState(NamedTuple):
    """Exchanges of an agent with one neighbour so far."""

    given: Arrays  # s_ij, by leaf of the total
    received: Arrays  # last used message: averages, then s'_ji
    has_news: Any  # whether that message was new in the last round


class AsynchronousMixing:
    """Asynchronous mixing of an agent with its neighbours; `message` has the shapes of one."""

    def __init__(self, neighbours: Sequence[int], message: Message, layout: Layout):
        self.neighbours = list(neighbours)
        self.averages = len(jax.tree.leaves(message.average))
        self.totals = len(layout) - self.averages
        self.bundle_layout = layout[: self.averages] + layout[self.averages :] * len(neighbours)
        self._blank = [np.zeros(spec.shape, spec.dtype) for spec in layout]

    def initial_states(self) -> tuple[LinkState, ...]:
        """Return the state of each link before the first round."""
        state = LinkState(self._blank[self.averages :], self._blank, np.array(True))
        return (state,) * len(self.neighbours)

    def bundle(self, states: Sequence[LinkState], message: Arrays) -> list[np.ndarray]:
        """Return the arrays to send: the averages, then the running sums of each neighbour."""
        totals, sums = message[self.averages :], list[np.ndarray]()
        for state in states:
            given = [np.asarray(total) for total in state.given]
            sums += [s + u for s, u in zip(given, totals)] if state.has_news else given
        return [*message[: self.averages], *sums]

    def part_for(self, j: int, bundle: Arrays) -> list[Any]:
        """Return the arrays of a bundle that neighbour j receives."""
        start = self.averages + self.neighbours.index(j) * self.totals
        return [*bundle[: self.averages], *bundle[start : start + self.totals]]

    def frame_for(self, j: int, envelope: Envelope, frame: Frame) -> Frame:
        """Return the message in a frame with a bundle that neighbour j receives."""
        if not self.totals:
            return frame
        bundle = wire_format.decode(frame, envelope, self.bundle_layout)
        return wire_format.encode(envelope, self.part_for(j, bundle))

    def receive(
        self,
        states: Sequence[LinkState],
        message: Arrays,
        bundle: Arrays,
        received: Mapping[int, Arrays],
    ) -> tuple[dict[int, Arrays], tuple[LinkState, ...]]:
        """Return what to mix with in place of each neighbour's message, and the next states.

        `message` and `bundle` are the agent's own; `received` has the new messages.
        """
        first, mixed, new_states = self.averages, dict[int, Arrays](), list[LinkState]()
        for j, state in zip(self.neighbours, states):
            given, is_new = self.part_for(j, bundle)[first:], j in received
            arrays = received[j] if is_new else [np.asarray(a) for a in state.received]
            flows = zip(message[first:], arrays[first:], state.received[first:], given, state.given)
            mixed[j] = [
                *(message if self.totals and not is_new else arrays)[:first],
                *(
                    u + ((s - np.asarray(used)) - (gives - np.asarray(gave)))
                    for u, s, used, gives, gave in flows
                ),
            ]
            new_states.append(LinkState(given, arrays, np.array(is_new)))
        return mixed, tuple(new_states)
