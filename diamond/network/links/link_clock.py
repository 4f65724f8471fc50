"""Simulated time of rounds on the links of a network, and the delay by resent packets."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diamond.network.links.link_properties import Links
from diamond.network.links.link_values import Numbers

Indices = NDArray[np.int64]
BLOCK = 1024  # rounds whose slow agents are drawn at once
SAME = 1e-12  # relative tolerance for periodic clocks
PACKET = 1448  # bytes of a TCP stream in an Ethernet frame
NEVER = 1e-9  # probability of resends that is neglected


class TimedExchange(NamedTuple):
    """Messages from `senders` to `receivers`, one entry each, and their durations."""

    senders: Indices
    receivers: Indices
    links: Indices  # number of the link of each message
    ways: Indices  # 0, or 1 for the reverse direction
    delay: Numbers  # seconds of each message and its request, without resends
    request_delay: Numbers
    packets: tuple[int, int]  # of a message and of its request
    sends_before_compute: bool  # whether messages leave before the computation
    steps: tuple[Indices, ...] = ()  # messages of each step of an exact mean


class LinkClock:
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
    taken max_i T_i. In an exact mean, messages travel along a tree instead, each one after those
    that its sender waits for; if links wait for one another or change, all agents wait for every
    step. Packet losses are drawn by (seed, t, link) if there is a timeout. The
    max-consensus exchanges that estimate open numbers are added, one after another over the link
    that is slowest on average. If `compute` is measured, c_i is 0, and the time that the rounds of
    all m agents took on this machine, divided by m, times the mean of max_i s_i(t), is added.

    `exchanges`: (b_k, whether the message is early) of each. `active`: link numbers of rounds 0, 1,
    ..., periodically, if the links change. `means`: indices of the exchanges that are exact means,
    and `mean_steps` their messages (sender, receiver), step by step, for the same rounds, each sent
    `mean_tries` times.
    """

    def __init__(
        self,
        links: Links,
        exchanges: Sequence[tuple[int, bool]],
        seed: int,
        active: Sequence[Sequence[int]] | None = None,
        means: Sequence[int] = (),
        mean_steps: Sequence[Sequence[Sequence[tuple[int, int]]]] = (),
        mean_tries: float = 1.0,
    ):
        self.links, self.seed, self.mean_tries = links, seed, mean_tries
        agents = len(links.stragglers)
        self.compute = np.zeros(agents) if links.compute is None else links.compute
        self.active = active or [range(len(links.edges))]
        self.rounds = [
            [
                self._mean(mean_steps[t], *exchange)
                if k in means
                else self._exchange(np.array(numbers, int), *exchange)
                for k, exchange in enumerate(exchanges)
                if agents > 1
            ]
            for t, numbers in enumerate(self.active)
        ]
        self.end_times = [0.0]  # max_i T_i after each round
        self.recent_clocks = [np.zeros(agents)]  # T after the last rounds
        self.is_random = bool(links.slow_chance) or links.has_resend_delay
        self.period_gain: float | None = None  # period increment, once constant
        self.period = 2 * len(self.rounds)

    def seconds(
        self,
        rounds: int,
        consensus_exchanges: int = 0,
        consensus_bytes: int = 0,
        measured: float = 0.0,
    ) -> float:
        """Return the time at which all agents have made `rounds` rounds.

        `consensus_exchanges` exchanges of `consensus_bytes` bytes per link and direction, together,
        are added. `measured` is the time in seconds of the rounds of all agents on this machine.
        """
        seconds = self._end_time(rounds)
        if consensus_exchanges:
            seconds_of_exchange = self._consensus_seconds(consensus_bytes / consensus_exchanges)
            seconds += consensus_exchanges * seconds_of_exchange
        if self.links.compute is None and rounds:
            seconds += measured / len(self.compute) * self._sum_slowest(rounds) / rounds
        return seconds

    def count_active_rounds(self, rounds: int) -> Indices:
        """Return in how many of the rounds each link is active."""
        counts = np.zeros(len(self.links.edges), np.int64)
        periods, rest = divmod(rounds, len(self.active))
        for t, numbers in enumerate(self.active):
            counts[np.array(numbers, int)] += periods + (t < rest)
        return counts

    def _end_time(self, rounds: int) -> float:
        """Return max_i T_i after `rounds` rounds.

        Without randomness clocks soon become periodic: T(t + 2) = T(t) + gain, since the heaviest
        cycle of the recurrence is an agent alone or one link in both directions. One-way or
        changing links need not be periodic, so every round is computed.
        """
        while len(self.end_times) <= rounds and self.period_gain is None:
            clocks = self._run_round(len(self.end_times) - 1, self.recent_clocks[-1])
            self.recent_clocks = [*self.recent_clocks[-self.period :], clocks]
            self.end_times.append(float(clocks.max()))
            if len(self.recent_clocks) > self.period and not self.is_random:
                gains = clocks - self.recent_clocks[0]
                is_constant = np.ptp(gains) <= SAME * clocks.max()
                self.period_gain = float(gains.max()) if is_constant else None
        if rounds < len(self.end_times):
            return self.end_times[rounds]
        periods, offset = divmod(rounds - len(self.end_times), self.period)
        return self.end_times[offset - self.period] + (periods + 1) * (self.period_gain or 0.0)

    def _run_round(self, t: int, clocks: Numbers) -> Numbers:
        """Return T after round t."""
        exchanges = self.rounds[t % len(self.rounds)]
        compute_seconds = self.compute * self._slowdowns(t) / max(len(exchanges), 1)
        if not exchanges:
            return clocks + compute_seconds
        for exchange, (message_wait, request_wait) in zip(
            exchanges, self._resend_waits(t, exchanges)
        ):
            start_times, clocks = clocks, clocks + compute_seconds
            send_times = start_times if exchange.sends_before_compute else clocks
            delay = exchange.delay + message_wait
            request_delay = exchange.request_delay + request_wait
            if exchange.steps:
                requested = start_times[exchange.receivers] + request_delay
                times = self._run_mean(exchange, send_times, requested, delay, request_delay)
                clocks = np.maximum(clocks, times)
                continue
            if self.links.takes_turns:
                end = send_times.max() + self._seconds_of_turns(exchange, delay + request_delay)
                clocks = np.full(len(clocks), max(clocks.max(), end))
                continue
            departures = send_times[exchange.senders]
            if self.links.pulled:
                departures = np.maximum(departures, start_times[exchange.receivers] + request_delay)
            np.maximum.at(clocks, exchange.receivers, departures + delay)
        return clocks

    def _run_mean(
        self,
        exchange: TimedExchange,
        start_times: Numbers,
        requested: Numbers,
        delay: Numbers,
        request_delay: Numbers,
    ) -> Numbers:
        """Return when each agent has the mean, if all start at `start_times`."""
        times = start_times.copy()
        for step in exchange.steps:
            if self.links.takes_turns:
                seconds = np.zeros_like(delay)
                seconds[step] = (delay + request_delay)[step]
                times[:] = times.max() + self._seconds_of_turns(exchange, seconds)
            elif len(self.active) > 1:
                times[:] = times.max() + delay.max()
            else:
                departures = times[exchange.senders[step]]
                if self.links.pulled:
                    departures = np.maximum(departures, requested[step])
                np.maximum.at(times, exchange.receivers[step], departures + delay[step])
        return times

    def _mean(
        self, steps: Sequence[Sequence[tuple[int, int]]], count: float, sends_before_compute: bool
    ) -> TimedExchange:
        """Return the exact mean of `count` bytes per message."""
        number_of_edge = {edge: k for k, edge in enumerate(self.links.edges)}
        arcs = [arc for step in steps for arc in step]
        ways = np.array([int(arc not in number_of_edge) for arc in arcs], int)
        edges = [arc[::-1] if way else arc for arc, way in zip(arcs, ways)]
        numbers = np.array([number_of_edge[edge] for edge in edges], int)
        ends = np.array(arcs, int).reshape(-1, 2)
        places = np.split(np.arange(len(arcs)), np.cumsum([len(step) for step in steps])[:-1])
        timed = self._timed(ends, numbers, ways, count, sends_before_compute)
        return timed._replace(delay=self.mean_tries * timed.delay, steps=tuple(places))

    def _exchange(
        self, numbers: Indices, count: float, sends_before_compute: bool
    ) -> TimedExchange:
        """Return the exchange of `count` bytes over the links `numbers`."""
        ends = np.array(self.links.edges, int).reshape(-1, 2)[numbers]
        if not self.links.one_way:
            ends = np.concatenate([ends, ends[:, ::-1]])
        ways = np.repeat(range(self.links.ways), len(numbers))
        links = np.tile(numbers, self.links.ways)
        return self._timed(ends, links, ways, count, sends_before_compute)

    def _timed(
        self,
        ends: Indices,
        links: Indices,
        ways: Indices,
        count: float,
        sends_before_compute: bool,
    ) -> TimedExchange:
        """Return the exchange of `count` bytes from the first to the second of `ends`."""
        delay, request_delay = self.links.seconds(count)[links], self.links.seconds(0)[links]
        request_delay = request_delay * self.links.pulled
        sizes = packets(count + self.links.headers), packets(self.links.headers)
        return TimedExchange(
            ends[:, 0], ends[:, 1], links, ways, delay, request_delay, sizes, sends_before_compute
        )

    def _seconds_of_turns(self, exchange: TimedExchange, delay: Numbers) -> float:
        """Return the seconds of an exchange whose links wait for one another."""
        seconds_of_links = np.bincount(exchange.links, delay, len(self.links.edges))
        longest = np.zeros(self.links.turns.max(initial=0) + 1)
        np.maximum.at(longest, self.links.turns, seconds_of_links)
        return float(longest.sum())

    def _resend_waits(self, t: int, exchanges: Sequence[TimedExchange]) -> Any:
        """Return timeout_e G of the messages of round t, and of their requests."""
        if not self.links.has_resend_delay:
            return [(0.0, 0.0)] * len(exchanges)
        waits, shape = [], (len(exchanges), 2, 2, len(self.links.edges))
        for exchange, draws in zip(exchanges, chances(self.seed, t, shape)):
            timeout, loss = self.links.timeout[exchange.links], self.links.loss[exchange.links]
            message_wait, request_wait = (
                timeout * resends(loss, number, chance[exchange.ways, exchange.links])
                for number, chance in zip(exchange.packets, draws)
            )
            waits.append((message_wait, request_wait * self.links.pulled))
        return waits

    def _consensus_seconds(self, count: float) -> float:
        """Return the mean seconds of one exchange of `count` bytes that estimates numbers."""
        exchange = self._exchange(np.arange(len(self.links.edges)), count, False)
        timeout, loss = self.links.timeout[exchange.links], self.links.loss[exchange.links]
        message_wait, request_wait = (
            timeout * mean_resends(loss, number) for number in exchange.packets
        )
        delay = exchange.delay + message_wait + exchange.request_delay
        delay += request_wait * self.links.pulled
        if self.links.takes_turns:
            return self._seconds_of_turns(exchange, delay)
        return float(delay.max(initial=0.0))

    def _slowdowns(self, t: int) -> Numbers:
        """Return s_i(t)."""
        if not self.links.slow_chance:
            return self.links.stragglers
        return self._draw_slowdowns(t // BLOCK)[t % BLOCK]

    def _draw_slowdowns(self, block: int) -> Numbers:
        """Return s_i(t) of a block of rounds, (rounds, agents)."""
        if getattr(self, "block", None) != block:
            key = np.array([self.seed % 2**64, block], np.uint64)
            source = np.random.Generator(np.random.Philox(key=key))
            is_slow = source.random((BLOCK, len(self.compute))) < self.links.slow_chance
            factors = np.where(is_slow, self.links.slow_factor, 1.0)
            self.block, self.factors = block, factors * self.links.stragglers
        return self.factors

    def _sum_slowest(self, rounds: int) -> float:
        """Return sum_t max_i s_i(t) over the first `rounds` rounds."""
        if not self.links.slow_chance:
            return rounds * float(self.links.stragglers.max())
        blocks = range(-(-rounds // BLOCK))
        slowest = np.concatenate([self._draw_slowdowns(block).max(1) for block in blocks])
        return float(slowest[:rounds].sum())


def packets(count: float) -> int:
    """Return the number of packets of a message of `count` bytes."""
    return max(1, -(-int(count) // PACKET))


def chances(seed: int, t: int, shape: tuple[int, ...]) -> Numbers:
    """Draw uniform numbers between 0 and 1, a function of the seed and the round."""
    key = np.array([seed % 2**64, t], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, 1])).random(shape)


def resends(loss: Numbers, number: int, chance: Any) -> Numbers:
    """Return G, the number of resends of the unluckiest of `number` packets.

        P(G <= k) = (1 - loss^(k + 1))^number

    at the quantile `chance`, uniform between 0 and 1; one value per link.
    """
    tail = np.maximum(-np.expm1(np.log(np.maximum(chance, NEVER)) / number), NEVER)
    with np.errstate(divide="ignore"):
        return np.maximum(np.ceil(np.log(tail) / np.log(loss)) - 1, 0.0)


def mean_resends(loss: Numbers, number: int) -> Numbers:
    """Return the mean of G: sum_k P(G > k)."""
    mean, exceedance = np.zeros_like(loss), np.ones_like(loss)
    k = 0
    while (exceedance > NEVER).any():
        k += 1
        exceedance = -np.expm1(number * np.log1p(-(loss**k)))
        mean = mean + exceedance
    return mean
