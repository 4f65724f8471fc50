"""Rehearsal: all sites of a federation in this process, with the bits that they would have."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..core.sampling import Sampling
from ..interface.round_interface import Algorithm
from ..network import Network
from ..problem import Problem
from ..sites.rounds.node import MissingPolicy, Node
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
    seconds: Sequence[float] = (),
) -> list[AgentProgress]:
    """Run all sites in this process without TLS, each problem with one site's rows.

    The messages and bits equal those between sites, so this tests a deployment. `names` are the
    names of the sites in the order of the problems. `seconds` are those of a round at each site, on
    a simulated clock: with them, rounds are asynchronous.
    """
    missing: MissingPolicy = "asynchronous" if seconds else "wait"

    async def run_slowly(number: int, function: Callable[..., Any], *args: Any) -> Any:
        if function.__name__ == "compute":
            await asyncio.sleep(seconds[number])
        return function(*args)

    async def everyone() -> list[AgentProgress]:
        wire = InProcessNetwork()
        for number, problem in enumerate(problems):
            options: dict[str, Any] = {"seed": seed, "sampling": sampling, "missing": missing}
            agent = Agent(problem, network, algorithm, number, **options)
            options = {"names": dict(enumerate(names)), "missing": missing}
            run_blocking = partial(run_slowly, number) if seconds else run_inline
            transport = wire.transport(number)
            wire.nodes[number] = Node(
                agent, rounds, transport, run_blocking=run_blocking, **options
            )
        try:
            return list(await asyncio.gather(*(node.run() for node in wire.nodes.values())))
        finally:
            wire.close()

    check_counts(rounds, seed)
    if len(problems) != network.agents or len(seconds) not in (0, network.agents):
        what = "seconds" if len(problems) == network.agents else "problems"
        given = len(seconds if what == "seconds" else problems)
        raise ValueError(f"{given} {what} for a network of {network.agents} agents")
    check_changes(problems[0], network, algorithm, missing)
    return run_simulated(everyone())
