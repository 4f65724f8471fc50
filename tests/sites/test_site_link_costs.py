"""Site folders of a federation with links have the network seconds of the simulation."""

import asyncio

import numpy as np
import pytest
from fast_compilation import skip_measures, without_optimizations
from helpers import quad
from lockstep_agents import agents, build_algorithm
from typer.testing import CliRunner

import diamond
from diamond import cli
from diamond.config import federation_file
from diamond.metrics.link_costs import LinkCosts
from diamond.records.folder_reader import open_run
from diamond.records.folder_writer import Writer
from diamond.records.manifest import RunOrigin
from diamond.report.report_payload import collect_report_data
from diamond.schedules.deferred import ResolutionContext, ResolvedValue, resolve
from diamond.sites.memory.site_run_folder import SiteRunFolder
from diamond.sites.rounds.node import Node
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

ROUNDS, EVERY = 4, 2
LINKS = {"rate": 1e4, "latency": 0.01, "loss": 0.2, "timeout": 0.05, "joules_per_bit": 1e-6}
FILE = {
    "name": "trial",
    "rounds": ROUNDS,
    "network": {"graph": "path", "agents": 3, "links": LINKS | {"pulled": True}},
    "algorithm": {"name": "gt_sgd", "batch": 3},
    "sites": {name: "127.0.0.1:1" for name in ("north", "south", "west")},
}


@pytest.mark.wide
def test_sites_write_the_seconds_of_the_simulation(tmp_path, monkeypatch):
    skip_measures(monkeypatch)
    network = federation_file.validate(FILE, "trial.toml").build_network()
    problem = quad(agents=3)
    algorithm = build_algorithm("gt_sgd")
    diaries = {}

    async def life(wire, agent):
        place = tmp_path / str(agent.number)
        with Writer(place) as writer:
            node = Node(
                agent, ROUNDS, wire.transport(agent.number), place, EVERY, run_blocking=run_inline
            )
            origin = RunOrigin(place.name, "trial", "quadratic", "gt_sgd", "GT-SGD", {}, "", {})
            diary = diaries[agent.number] = SiteRunFolder(writer, node, origin, "")
            node.on_round = diary.record_evaluation
            wire.nodes[agent.number] = node
            with diary.record_outcome():
                await node.run()

    async def everyone():
        wire = InProcessNetwork()
        await asyncio.gather(*(life(wire, agent) for agent in agents(problem, network, algorithm)))

    with without_optimizations():
        run_simulated(everyone())
        run = diamond.simulate(problem, network, algorithm, ROUNDS, every=EVERY)
    for place in map(str, range(3)):
        found = [line["network_seconds"] for line in open_run(tmp_path / place).lines]
        np.testing.assert_allclose(found, run.history["network_seconds"], rtol=1e-12)
    assert list(collect_report_data([tmp_path])["axes"])[-1] == "network_seconds"
    assert "network seconds" in CliRunner().invoke(cli.app, ["show", str(tmp_path)]).stdout
    # Finding a number takes as many exchanges as the network is wide, here two.
    found = {"alpha": ResolvedValue(0.1, agreed=3, talks=1)}
    setup = resolve(algorithm, ResolutionContext(problem, network, 3, 0, memory=dict(found)))
    assert setup.rounds == 2
    wanted = LinkCosts(network, diaries[0].link_costs.traffic, 0).costs_after(ROUNDS, setup, 0.0)
    costs = diaries[0]._link_seconds(diaries[0].progress._replace(estimates=found), 0.0)
    assert (
        costs["network_seconds"] == wanted["network_seconds"] > run.history["network_seconds"][-1]
    )
