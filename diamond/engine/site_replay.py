"""Replay of asynchronous rounds: the bits of a run of sites, from the versions that each used."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.sampling import Sampling
from ..interface.round_interface import Algorithm
from ..network import Network
from ..problem import Problem
from ..sites.rounds.agent_setup import LocalMeasure
from ..sites.rounds.local_measures import measure_agent
from ..sites.rounds.round_progress import AgentProgress
from ..sites.rounds.site_agent import Agent
from .site_checks import check_counts

OnRound = Callable[[int, AgentProgress], object]
Versions = Sequence[Mapping[int, int]]  # of one agent: by round, the version of each neighbour


class SiteReplay(NamedTuple):
    """Progress of a site after its last round, and its measures every `every` rounds."""

    progress: AgentProgress
    history: list[dict[str, float]]


def replay(
    problems: Sequence[Problem],
    network: Network,
    algorithm: Algorithm,
    versions: Sequence[Versions],
    *,
    every: int = 10,
    seed: int = 0,
    sampling: Sampling = "blocks",
    measure: LocalMeasure | None = None,
    on_round: OnRound | None = None,
) -> list[SiteReplay]:
    """Run asynchronous rounds in which each site uses given messages of its neighbours.

    On the machine of the sites, x, y and the history have the bits of their run.

    Args:
        problems: problem of each site, with its rows only.
        network, algorithm, seed, sampling, measure: those of the sites.
        versions: by site and round, the round in which each neighbour made the message that is
            used; `sites.memory.edge_journal.recorded_versions` reads them from run folders.
        every: rounds between measurements, those of the federation.
        on_round: called with the number of a site and its progress, at the start and after each of
            its rounds.

    Returns:
        The end and the history of each site. The measures are those of its run folder without
        `seconds` and `waited`.
    """
    check_counts(1, seed, every)
    if not len(problems) == len(versions) == network.agents:
        raise ValueError(
            f"{len(problems)} problems and versions of {len(versions)} agents for a network of "
            f"{network.agents} agents; give one for each"
        )
    options: dict[str, Any] = {"seed": seed, "sampling": sampling, "missing": "asynchronous"}
    sites = [
        _ReplayedSite(Agent(problem, network, algorithm, i, **options), own, every, on_round)
        for i, (problem, own) in enumerate(zip(problems, versions))
    ]
    for site in sites:
        site.agent.measure = measure or site.agent.measure
        site.begin_round([])
    while any([site.advance(sites) for site in sites]):
        pass
    for site in sites:
        if not site.is_finished:
            t = site.progress.t
            raise ValueError(
                f"agent {site.agent.number} uses the messages {dict(site.versions[t])} in round "
                f"{t}, and not all of them exist: give the versions of one run of all sites"
            )
    return [SiteReplay(site.progress, site.history) for site in sites]


class _ReplayedSite:
    """One site of a replay: rounds as in `ExchangeRunner`, with bundles kept until their use."""

    def __init__(self, agent: Agent, versions: Versions, every: int, on_round: OnRound | None):
        self.agent, self.versions, self.every = agent, versions, every
        self.on_round = on_round
        assert agent.asynchronous is not None
        self.mixing = agent.asynchronous
        self.progress, self.history = agent.initial_progress(), list[dict[str, float]]()
        self.used = dict.fromkeys(agent.neighbours, -1)
        self.bundles: dict[int, list[Any]] = {}  # by round

    @property
    def is_finished(self) -> bool:
        """Return whether the site has run all its rounds."""
        return self.progress.t == len(self.versions)

    def advance(self, sites: "Sequence[_ReplayedSite]") -> bool:
        """Finish the current round and begin the next; return False if a message is missing."""
        if self.is_finished:
            return False
        number, progress = self.agent.number, self.progress
        new = {j: v for j, v in self.versions[progress.t].items() if v != self.used[j]}
        if any(version not in sites[j].bundles for j, version in new.items()):
            return False
        bundles = {j: sites[j].bundles[version] for j, version in new.items()}
        received = {j: sites[j].mixing.part_for(number, bundle) for j, bundle in bundles.items()}
        self.used |= new
        for j in new:
            sites[j].drop_bundles(min(sites[k].used[j] for k in sites[j].used))
        states, bundle = progress.channel_states, self.bundles[progress.t]
        mixed, states = self.mixing.receive(states, self._own, bundle, received)
        messages = mixed | {number: self._own}
        after = self.agent.finish_exchange(progress, 0, self._local_result, messages)
        self.progress = self.agent.finish_round(after._replace(channel_states=states))
        sources = dict(zip(self.used, [[*state.received] for state in states]))
        self.begin_round([sources | {number: self._own}])
        return True

    def drop_bundles(self, first: int) -> None:
        """Drop the bundles of rounds before `first`, but not that of the current round."""
        rounds = [t for t in self.bundles if t < min(first, self.progress.t)]
        for t in rounds:
            del self.bundles[t]

    def begin_round(self, messages: list[dict[int, list[Any]]]) -> None:
        """Measure if it is due, with the last round's messages, and compute the next bundle."""
        progress, agent = self.progress, self.agent
        if self.on_round is not None:
            self.on_round(agent.number, progress)
        if progress.t % self.every == 0 or self.is_finished:
            self.history.append(measure_agent(agent, progress, messages))
        if self.is_finished:
            return
        own = []
        if is_early := agent.sends_before_gradient(0):
            own = agent.outgoing_arrays(progress, 0, None)
        self._local_result = agent.compute(progress, 0)
        self._own = own if is_early else agent.outgoing_arrays(progress, 0, self._local_result)
        self.bundles[progress.t] = self.mixing.bundle(progress.channel_states, self._own)
