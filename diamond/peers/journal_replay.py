"""Replay of a run of sites: the links that were down in each round, read from the journals."""

from collections.abc import Sequence
from pathlib import Path

from ..network import Network
from ..network.link_interruptions import interrupted
from ..records import checkpoint
from .edge_journal import DOWN, OWN, SKIP, UP, EdgeJournal
from .outbox import NEVER
from .site_checkpoint import STATE_FOLDER


def recorded_network(network: Network, folders: Sequence[Path], exchanges: int = 1) -> Network:
    """Return the network with which `diamond.simulate` repeats a run of sites with a deadline.

    Args:
        network: network of the sites.
        folders: run folders of all sites, in the order of the agents, after the run.
        exchanges: exchanges of a round of the method.

    Returns:
        The network whose links are down, and whose agents skip rounds, as in the run.
    """
    if len(folders) != network.agents:
        raise ValueError(f"{len(folders)} folders for {network.agents} agents; give one for each")
    votes = [_read_votes(network, i, Path(folder)) for i, folder in enumerate(folders)]
    rounds = min(len(log) for own in votes for j, log in own.items() if j != OWN) // exchanges
    down: list[set[tuple[int, int]]] = [set() for _ in range(rounds)]
    skipping: list[set[int]] = [set() for _ in range(rounds)]
    for t in range(rounds):
        span = range(t * exchanges, (t + 1) * exchanges)
        for i, own in enumerate(votes):
            if all(own[OWN].get(tick) == SKIP for tick in span):
                skipping[t].add(i)
        for i, j in network.edges:
            states = {votes[a][b].get(tick, "") for tick in span for a, b in ((i, j), (j, i))}
            if states == {DOWN}:
                down[t].add((i, j))
            elif states != {UP}:
                raise ValueError(
                    f"the link of agents {i} and {j} in round {t} is recorded as "
                    f"{' and '.join(sorted(filter(None, states))) or 'nothing'}: only runs with a "
                    f"deadline whose links keep their state for a whole round can be replayed"
                )
    return interrupted(network, [sorted(links) for links in down], skipping)


def _read_votes(network: Network, agent: int, folder: Path) -> dict[int, dict[int, str]]:
    """Return all votes of one site by neighbour and exchange."""
    saved = checkpoint.saved_rounds(folder / STATE_FOLDER)
    if not saved:
        raise ValueError(f"{folder} has no checkpoint: give the run folder of agent {agent}")
    run = checkpoint.load(folder / STATE_FOLDER, saved[-1]).notes["run"]
    neighbours = [j for j in network.weights[[agent]].indices.tolist() if j != agent]
    journal = EdgeJournal(neighbours, run, folder / "journal", keeps_history=True)
    journal.restore(NEVER)
    journal.close()
    votes = journal.read_history()
    return {OWN: {}} | votes
