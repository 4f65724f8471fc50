"""Simulated time of rounds on the links of a network."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diamond.network.links.link_properties import Links
from diamond.network.links.link_values import Numbers

from .resending import chances, mean_resends, packets, resends

BLOCK = 1024  # rounds whose slow agents are drawn at once
SAME = 1e-12  # relative tolerance for periodic clocks


class Exchange(NamedTuple):
    """Messages from `senders` to `receivers`, one entry each, and their durations."""

    senders: NDArray[np.int64]
    receivers: NDArray[np.int64]
    links: NDArray[np.int64]  # number of the link of each message
    ways: NDArray[np.int64]  # 0, or 1 for the reverse direction
    delay: Numbers  # seconds of each message and its request, without resends
    asking: Numbers
    packets: tuple[int, int]  # of a message and of its request
    early: bool  # whether messages leave before the computation


class Clock:
    """Clocks of the agents in synchronous rounds: an agent waits for all messages it needs.

    A round has n exchanges; the k-th carries b_k bytes over every link in each direction. Before
    it, agent i computes for c_i = compute_i s_i(t) / n seconds, where s_i(t) is its factor of
    `stragglers`, times `slow_factor` with probability `slow_chance`, a function of (seed, t, i).
    From T = 0 on,

        T_i <- max(T_i + c_i, max_j T_j + c_j + d_ji(b_k))      j: those that i hears

    with d_ji of `Links`. An early message leaves before the computation: without its c_j. If
    messages are pulled, i requests them as it begins, by a message without arrays, and the response
    leaves after the request arrives:

        T_i <- max(T_i + c_i, max_j max(T_j + c_j, T_i + d_ij(0)) + d_ji(b_k))

    If links wait for one another, all begin together and each link has its turn, one direction and
    then, unless the link is one-way, the other (responses after requests):

        T_i <- max_j (T_j + c_j) + sum_turns max_{e of the turn} 2 d_e(b_k)

    and the larger of max_j T_j + c_j and max_j T_j + sum ... if the message is early. The run has
    taken max_i T_i. Packet losses are drawn by (seed, t, link) if there is a timeout. The
    max-consensus exchanges that estimate open numbers are added, one after another over the link
    that is slowest on average. If `compute` is measured, c_i is 0, and the time that the rounds of
    all m agents took on this machine, divided by m, times the mean of max_i s_i(t), is added.

    `exchanges`: (b_k, early) of each. `active`: link numbers of rounds 0, 1, ..., periodically, if
    the links change.
    """

    def __init__(
        self,
        links: Links,
        exchanges: Sequence[tuple[int, bool]],
        seed: int,
        active: Sequence[Sequence[int]] | None = None,
    ):
        self.links, self.seed = links, seed
        agents = len(links.stragglers)
        self.compute = np.zeros(agents) if links.compute is None else links.compute
        self.active = active or [range(len(links.edges))]
        self.rounds = [
            [self._exchange(np.array(there, int), *one) for one in exchanges if agents > 1]
            for there in self.active
        ]
        self.ends, self.recent = [0.0], [np.zeros(agents)]  # max_i T_i of all rounds; last T
        self.chance = bool(links.slow_chance) or links.waits
        self.gain: float | None = None  # period increment, once constant
        self.lag = 2 * len(self.rounds)

    def seconds(self, rounds: int, talks: int = 0, talked: int = 0, measured: float = 0.0) -> float:
        """Return the time at which all agents have made `rounds` rounds.

        `talks` exchanges of `talked` bytes per link and direction are added. `measured` is the time
        in seconds of the rounds of all agents on this machine.
        """
        spent = self._clocks(rounds) + (talks * self._talk(talked / talks) if talks else 0.0)
        if self.links.compute is None and rounds:
            spent += measured / len(self.compute) * self._slowest(rounds) / rounds
        return spent

    def uses(self, rounds: int) -> NDArray[np.int64]:
        """Return in how many of the rounds each link is active."""
        found = np.zeros(len(self.links.edges), np.int64)
        whole, rest = divmod(rounds, len(self.active))
        for t, there in enumerate(self.active):
            found[np.array(there, int)] += whole + (t < rest)
        return found

    def _clocks(self, rounds: int) -> float:
        """Return max_i T_i after `rounds` rounds.

        Without randomness clocks soon become periodic: T(t + 2) = T(t) + gain, since the heaviest
        cycle of the recurrence is an agent alone or one link in both directions. One-way or
        changing links need not be periodic, so every round is computed.
        """
        while len(self.ends) <= rounds and self.gain is None:
            after = self._round(len(self.ends) - 1, self.recent[-1])
            self.recent = [*self.recent[-self.lag :], after]
            self.ends.append(float(after.max()))
            if len(self.recent) > self.lag and not self.chance:
                gain = after - self.recent[0]
                self.gain = float(gain.max()) if np.ptp(gain) <= SAME * after.max() else None
        if rounds < len(self.ends):
            return self.ends[rounds]
        times, which = divmod(rounds - len(self.ends), self.lag)
        return self.ends[which - self.lag] + (times + 1) * (self.gain or 0.0)

    def _round(self, t: int, clock: Numbers) -> Numbers:
        """Return T after round t."""
        exchanges = self.rounds[t % len(self.rounds)]
        busy = self.compute * self._slow(t) / max(len(exchanges), 1)
        if not exchanges:
            return clock + busy
        for each, (late, later) in zip(exchanges, self._waits(t, exchanges)):
            begin, clock, start = (clock if each.early else clock + busy), clock + busy, clock
            delay, asking = each.delay + late, each.asking + later
            if self.links.takes_turns:
                end = begin.max() + self._turns(each, delay + asking)
                clock = np.full(len(clock), max(clock.max(), end))
                continue
            leave = begin[each.senders]
            if self.links.pulled:
                leave = np.maximum(leave, start[each.receivers] + asking)
            np.maximum.at(clock, each.receivers, leave + delay)
        return clock

    def _exchange(self, there: NDArray[np.int64], count: float, early: bool) -> Exchange:
        """Return the exchange of `count` bytes over the links `there`."""
        ends = np.array(self.links.edges, int).reshape(-1, 2)[there]
        if not self.links.one_way:
            ends = np.concatenate([ends, ends[:, ::-1]])
        ways, which = np.repeat(range(self.links.ways), len(there)), np.tile(there, self.links.ways)
        delay, asking = self.links.seconds(count)[which], self.links.seconds(0)[which]
        asking = asking * self.links.pulled
        sizes = packets(count + self.links.headers), packets(self.links.headers)
        return Exchange(ends[:, 0], ends[:, 1], which, ways, delay, asking, sizes, early)

    def _turns(self, each: Exchange, delay: Numbers) -> float:
        """Return the seconds of an exchange whose links wait for one another."""
        both = np.bincount(each.links, delay, len(self.links.edges))
        longest = np.zeros(self.links.turns.max(initial=0) + 1)
        np.maximum.at(longest, self.links.turns, both)
        return float(longest.sum())

    def _waits(self, t: int, exchanges: Sequence[Exchange]) -> Any:
        """Return timeout_e G of the messages of round t, and of their requests."""
        if not self.links.waits:
            return [(0.0, 0.0)] * len(exchanges)
        found, shape = [], (len(exchanges), 2, 2, len(self.links.edges))
        for each, drawn in zip(exchanges, chances(self.seed, t, shape)):
            timeout, loss = self.links.timeout[each.links], self.links.loss[each.links]
            message, asking = (
                timeout * resends(loss, number, chance[each.ways, each.links])
                for number, chance in zip(each.packets, drawn)
            )
            found.append((message, asking * self.links.pulled))
        return found

    def _talk(self, count: float) -> float:
        """Return the mean seconds of one exchange of `count` bytes that estimates numbers."""
        each = self._exchange(np.arange(len(self.links.edges)), count, False)
        timeout, loss = self.links.timeout[each.links], self.links.loss[each.links]
        message, asking = (timeout * mean_resends(loss, number) for number in each.packets)
        delay = each.delay + message + each.asking + asking * self.links.pulled
        return self._turns(each, delay) if self.links.takes_turns else float(delay.max(initial=0.0))

    def _slow(self, t: int) -> Numbers:
        """Return s_i(t)."""
        if not self.links.slow_chance:
            return self.links.stragglers
        return self._drawn(t // BLOCK)[t % BLOCK]

    def _drawn(self, block: int) -> Numbers:
        """Return s_i(t) of a block of rounds, (rounds, agents)."""
        if getattr(self, "block", None) != block:
            key = np.array([self.seed % 2**64, block], np.uint64)
            source = np.random.Generator(np.random.Philox(key=key))
            slow = source.random((BLOCK, len(self.compute))) < self.links.slow_chance
            factors = np.where(slow, self.links.slow_factor, 1.0)
            self.block, self.factors = block, factors * self.links.stragglers
        return self.factors

    def _slowest(self, rounds: int) -> float:
        """Return sum_t max_i s_i(t) over the first `rounds` rounds."""
        if not self.links.slow_chance:
            return rounds * float(self.links.stragglers.max())
        blocks = range(-(-rounds // BLOCK))
        most = np.concatenate([self._drawn(block).max(1) for block in blocks])
        return float(most[:rounds].sum())
