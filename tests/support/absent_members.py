"""Sites whose members change while some are absent, on a simulated clock."""

import asyncio
from collections import defaultdict

import numpy as np
from absent_agents import LIMITS
from changing_cluster import ROUNDS
from lockstep_agents import build_algorithm
from test_roster_acceptance import MEMBERS, FederatedCluster, write_roster

from diamond.sites.transport.errors import Unreachable

FOREVER = 1e9


class AbsentMembers(FederatedCluster):
    """Sites that are absent and links that are cut at some times, in seconds.

    `absences`: (agent, from, to), killed at the first and started again at the second. `cuts`:
    (agent, agent, from, to). `seconds`: of a computation by agent, 3 unless given.
    """

    def __init__(
        self, folder, absences=(), cuts=(), seconds=None, deadline=None, given=(), **options
    ):
        algorithm = options.pop("algorithm", None) or build_algorithm("gt_sgd")
        super().__init__(folder, algorithm, **options)
        self.absences, self.cuts, self.seconds = absences, cuts, seconds or {}
        self.wire.faults = (self.cut_links,)
        work = {"timeouts": LIMITS, "run_blocking": self.run_slowly}
        self.node_options = work | {"missing": "continue", "deadline": deadline}
        self.given = dict(given)  # versions of rosters given to agents while they are down
        self.were_stuck = set()
        self.gaps = defaultdict(dict)  # sum u - p of each agent by epoch and round
        self.votes = defaultdict(dict)  # in the journals by epoch, edge and exchange
        self.epochs_of = defaultdict(list)  # (epoch, first round run) of each agent
        self.end_times = {}

    async def run_slowly(self, function, *args):
        if function.__name__ == "compute":
            await asyncio.sleep(self.seconds.get(function.__self__.number, 3.0))
        return function(*args)

    def knows(self, i, j):
        """Whether site i admits j: its roster lists j as its neighbour."""
        return i in self.acceptances and j in self.acceptances[i].roster.members[i].neighbours

    async def cut_links(self, hop, content):
        now, ends = asyncio.get_running_loop().time(), {hop.sender, hop.receiver}
        if any({i, j} == ends and begin <= now < end for i, j, begin, end in self.cuts):
            raise Unreachable("the link is cut")
        if not self.knows(hop.receiver, hop.sender) or not self.knows(hop.sender, hop.receiver):
            raise Unreachable("a site that the roster does not list")
        return content

    def on_round(self, number, progress):
        site = self.wire.nodes[number]
        self.were_stuck |= {i for i, s in self.wire.nodes.items() if s.node.edges.stuck}
        first, state = site.epoch.from_round, progress.state
        self.gaps[first, progress.t][number] = np.asarray(state.u - state.p)
        if first not in [epoch for epoch, _ in self.epochs_of[number]]:
            self.epochs_of[number].append((first, progress.t))
        for j, log in site.node.edges.journal.votes.items():
            for t in range(first, log.end) if j >= 0 else ():
                if log.get(t):
                    self.votes[first, number, j][t] = log.get(t)
        super().on_round(number, progress)

    async def run_lives(self, number):
        clock = asyncio.get_running_loop().time
        deaths = [(begin, end) for agent, begin, end in self.absences if agent == number]
        while True:
            site = self.wire.nodes[number] = self.make(number)
            task = self.tasks[number] = asyncio.ensure_future(site.run())
            death = next(((b, e) for b, e in deaths if e > clock()), None)
            await asyncio.wait([task], timeout=death and max(0.0, death[0] - clock()))
            self.wire.nodes.pop(number)
            if task.done():
                self.end_times[number] = clock()
                return task.result()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            self.deaths += 1
            if death[1] == FOREVER:
                return None
            if number in self.given:
                write_roster(self.bundle(number), self.rosters[self.given[number] - 1])
            await asyncio.sleep(death[1] - clock())

    def check(self, found, repaired=()):
        """Check the same roster, sum u = sum p, and both ends of every edge.

        `repaired`: epochs that some members left before the end, whose sums the next one repairs.
        """
        last = max(self.acceptances[i].roster.version for i in self.acceptances)
        for i in MEMBERS[max(first for first, _ in self.epochs_of[0])]:
            assert self.acceptances[i].roster.version == last
        for first in {first for first, _ in self.gaps} - {*repaired}:
            latest = {}  # rounds that an agent skips or runs alone do not change its gap
            for t in range(first, min([t for t in MEMBERS if t > first], default=ROUNDS) + 1):
                latest |= self.gaps[first, t]
                assert t == 0 or np.abs(sum(latest.values())).max() < 1e-10, (first, t)
        for (first, i, j), votes in list(self.votes.items()):
            for t, vote in votes.items():
                other = self.votes[first, j, i].get(t, vote)
                assert first in repaired or {vote, other} != {"up", "down"}, (first, i, j, t)
        x = np.stack([np.asarray(progress.state.x) for progress in found if progress])
        assert np.isfinite(x).all()
        return x
