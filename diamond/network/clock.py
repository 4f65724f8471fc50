"""The time that rounds take on the links of a network."""

from collections.abc import Sequence

import numpy as np

from .link_values import Numbers
from .links import Links

BLOCK = 1024  # rounds whose slow agents are drawn at once
SAME = 1e-12  # of the time so far: clocks that differ by less go on alike


class Clock:
    """The clocks of the agents in synchronous rounds: an agent goes on when all it waits for came.

    A round has n exchanges; the k-th carries b_k bytes over every link each way. Before it, agent i
    computes for c_i = compute_i s_i(t) / n seconds, where s_i(t) is its factor of `stragglers`, and
    times `slow_factor` with the chance `slow_chance`, a function of (seed, t, i). From T = 0 on,

        T_i <- max(T_i + c_i, max_j T_j + c_j + d_ij(b_k))      j: the neighbours of i

    with d_ij of `Links`. A message that is early leaves before the computing: without its c_j.
    Where links wait for one another, all begin together and each link has its turn, one way and
    then the other:

        T_i <- max_j (T_j + c_j) + sum_turns max_{e of the turn} 2 d_e(b_k)

    and the larger of max_j T_j + c_j and max_j T_j + sum ... where the message is early. The run
    has taken max_i T_i. Finding numbers by talk (max-consensus) is on top, its exchanges one after
    another over the slowest link. Where `compute` is measured, c_i is 0, and on top is what the
    rounds of all m agents took on this machine, divided by m, times the mean of max_i s_i(t).
    """

    def __init__(self, links: Links, exchanges: Sequence[tuple[int, bool]], seed: int):
        self.links, self.seed = links, seed
        agents = len(links.stragglers)
        self.compute = np.zeros(agents) if links.compute is None else links.compute
        ends = np.array(links.edges, int).reshape(-1, 2)
        to, self.senders = np.concatenate([ends, ends[:, ::-1]]).T
        self.order = np.argsort(to, kind="stable")
        self.senders = self.senders[self.order]
        self.first = np.searchsorted(to[self.order], np.arange(agents))
        alone = agents == 1
        self.exchanges = [] if alone else [(self._delays(b), early) for b, early in exchanges]
        self.ends, self.recent = [0.0], [np.zeros(agents)]  # max_i T_i of all rounds, T of three
        self.gain: float | None = None  # of two rounds, once it stays the same

    def seconds(self, rounds: int, talks: int = 0, talked: int = 0, measured: float = 0.0) -> float:
        """When all agents have made `rounds` rounds.

        Also `talks` exchanges that carried `talked` bytes over every link, each way; `measured`:
        seconds of the rounds of all agents on this machine.
        """
        spent = self._clocks(rounds) + (talks * self._turn(talked / talks) if talks else 0.0)
        if self.links.compute is None and rounds:
            spent += measured / len(self.compute) * self._slowest(rounds) / rounds
        return spent

    def _clocks(self, rounds: int) -> float:
        """max_i T_i after `rounds` rounds.

        Without chance clocks soon go on alike, every second round: T(t + 2) = T(t) + gain. (The
        heaviest cycle of the recurrence is then an agent alone or one link, there and back.)
        """
        while len(self.ends) <= rounds and self.gain is None:
            after = self._round(self.recent[-1], self._slow(len(self.ends) - 1))
            self.recent = [*self.recent[-2:], after]
            self.ends.append(float(after.max()))
            if len(self.recent) == 3 and not self.links.slow_chance:
                gain = after - self.recent[0]
                self.gain = float(gain.max()) if np.ptp(gain) <= SAME * after.max() else None
        if rounds < len(self.ends):
            return self.ends[rounds]
        times, which = divmod(rounds - len(self.ends), 2)
        return self.ends[which - 2] + (times + 1) * (self.gain or 0.0)

    def _round(self, clock: Numbers, slow: Numbers) -> Numbers:
        """T after one more round."""
        busy = self.compute * slow / max(len(self.exchanges), 1)
        if not self.exchanges:
            return clock + busy
        for delay, early in self.exchanges:
            begin = clock if early else clock + busy
            if self.links.takes_turns:
                last = max((clock + busy).max(), begin.max() + delay)
                clock = np.full(len(clock), last)
            else:
                heard = np.maximum.reduceat(begin[self.senders] + delay, self.first)
                clock = np.maximum(clock + busy, heard)
        return clock

    def _delays(self, count: float) -> Numbers | float:
        """Of an exchange of `count` bytes: what is added to the clock of each sender, or of all."""
        if self.links.takes_turns:
            return self._turn(count)
        return np.tile(self.links.seconds(count), 2)[self.order]

    def _turn(self, count: float) -> float:
        """Seconds of an exchange of `count` bytes that all begin together."""
        each = self.links.seconds(count)
        if not self.links.takes_turns or not len(each):
            return float(each.max(initial=0.0))
        longest = np.zeros(self.links.turns.max() + 1)
        np.maximum.at(longest, self.links.turns, 2 * each)
        return float(longest.sum())

    def _slow(self, t: int) -> Numbers:
        """s_i(t)."""
        if not self.links.slow_chance:
            return self.links.stragglers
        return self._drawn(t // BLOCK)[t % BLOCK]

    def _drawn(self, block: int) -> Numbers:
        """s_i(t) of a block of rounds, (rounds, agents)."""
        if getattr(self, "block", None) != block:
            key = np.array([self.seed % 2**64, block], np.uint64)
            chance = np.random.Generator(np.random.Philox(key=key)).random(
                (BLOCK, len(self.compute))
            )
            slow = np.where(chance < self.links.slow_chance, self.links.slow_factor, 1.0)
            self.block, self.factors = block, slow * self.links.stragglers
        return self.factors

    def _slowest(self, rounds: int) -> float:
        """sum_t max_i s_i(t) over the first `rounds` rounds."""
        if not self.links.slow_chance:
            return rounds * float(self.links.stragglers.max())
        blocks = range(-(-rounds // BLOCK))
        most = np.concatenate([self._drawn(block).max(1) for block in blocks])
        return float(most[:rounds].sum())
