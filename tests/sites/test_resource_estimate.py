"""Estimates of disk and memory against the folders of sites that run."""

import asyncio

import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations

import diamond
from diamond.records import checkpoint_file
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.resource_estimate import estimate_resources
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

SIZE, ROUNDS, EVERY = 5_000, 24, 4  # numbers in x; a message has twice as many
NETWORK = diamond.network.path(2)
ALGORITHM = diamond.gt_sgd(0.05, 0.2, 2, diamond.hypergradient.neumann(1, 2.0), order="paper")
NOTES = 6_000  # bytes of JSON and headers at most, which the forecast leaves out


def problem(site):
    rows = np.random.default_rng(site).normal(site, 1, (4, 3)).astype(np.float32)
    f = lambda x, y, rows: jnp.mean((y - rows) ** 2) + 0.1 * jnp.mean(x**2)
    g = lambda x, y, rows: jnp.mean((y - rows) ** 2) + 0.1 * y @ x[:3]
    start = lambda key: (jnp.linspace(-1, 1, SIZE), jnp.zeros(3))
    return diamond.Problem(f, g, start, [rows], [rows])


@pytest.fixture(scope="module")
def team():
    with without_optimizations():
        return [Agent(problem(i), NETWORK, ALGORITHM, i) for i in range(2)]


def held(node):
    """Bytes of the messages that a site has in memory."""
    return sum(
        len(one)
        for one in node.service.outbox.frames.values()
        if isinstance(one, bytes | bytearray)
    )


def on_disk(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.wide
@pytest.mark.parametrize("missing", ["wait", "continue"])
def test_disk_and_memory_stay_close_below_the_estimate(tmp_path, team, monkeypatch, missing):
    disk, memory, wire = [], [], InProcessNetwork()
    replace = checkpoint_file.replace_file

    def watched(path, *content, durable=True):
        replace(path, *content, durable=durable)
        disk.append(on_disk(tmp_path / "0"))

    async def everyone():
        for agent in team:
            fixed = agent, ROUNDS, wire.transport(agent.number), tmp_path / str(agent.number), EVERY
            node = Node(*fixed, run_blocking=run_inline, missing=missing)
            node.on_round = lambda _: memory.append(held(wire.nodes[0]))
            wire.nodes[agent.number] = node
        await asyncio.gather(*(node.run() for node in wire.nodes.values()))

    monkeypatch.setattr(checkpoint_file, "replace_file", watched)
    with without_optimizations():
        run_simulated(everyone())
    forecast = estimate_resources(team[0], EVERY, missing)
    assert forecast.disk / 3 < max(disk) <= forecast.disk + NOTES
    assert forecast.memory / 5 < max(memory) <= forecast.memory
