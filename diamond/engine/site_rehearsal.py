"""Rehearsal: all sites of a federation in this process, with the bits that they would have."""

import asyncio
from collections.abc import Sequence

from ..core.sampling import Sampling
from ..interface.round_interface import Algorithm
from ..network import Network
from ..problem import Problem
from ..sites.rounds.node import Node
from ..sites.rounds.round_progress import AgentProgress
from ..sites.rounds.site_agent import Agent
from ..sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from .site_checks import check_changes, check_counts


def rehearse(
    problems: Sequence[Problem],
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    *,
    seed: int = 0,
    sampling: Sampling = "blocks",
    names: Sequence[str] = (),
) -> list[AgentProgress]:
    """Run all sites in this process without TLS, each problem with one site's rows.

    The messages and bits equal those between sites, so this tests a deployment. `names` are the
    names of the sites in the order of the problems.
    """

    async def everyone() -> list[AgentProgress]:
        wire = InProcessNetwork()
        for number, problem in enumerate(problems):
            agent = Agent(problem, network, algorithm, number, seed=seed, sampling=sampling)
            transport, site_names = wire.transport(number), dict(enumerate(names))
            wire.nodes[number] = Node(
                agent, rounds, transport, run_blocking=run_inline, names=site_names
            )
        try:
            return list(await asyncio.gather(*(node.run() for node in wire.nodes.values())))
        finally:
            wire.close()

    check_counts(rounds, seed)
    if len(problems) != network.agents:
        raise ValueError(f"{len(problems)} problems for a network of {network.agents} agents")
    check_changes(problems[0], network, algorithm)
    return run_simulated(everyone())
