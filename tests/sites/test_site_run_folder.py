"""The run folder of a site has the measures of the simulation, also after crashes."""

import asyncio
import json
from functools import cache

import numpy as np
import pytest
from crash_cluster import EVERY, LIMITS, ROUNDS, Killed, team
from fast_compilation import without_optimizations
from helpers import progress_by_round
from lockstep_agents import with_rows
from typer.testing import CliRunner

import diamond
from diamond import cli
from diamond.records.export import export_solution
from diamond.records.folder_reader import agent_columns, open_run, open_runs
from diamond.records.folder_writer import Writer
from diamond.records.manifest import RunOrigin
from diamond.report.report_payload import collect_report_data
from diamond.sites.memory.site_run_folder import SiteRunFolder
from diamond.sites.rounds.node import Node
from diamond.sites.transport.errors import RunFailed
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

SITES = ["north", "south", "west"]
AT = [0, 2, 4, 6, 7]  # rounds that are measured


def origin(name):
    return RunOrigin(name, "trial", "quadratic", "gt_sgd", "GT-SGD", {}, "", {})


async def life(wire, agent, folder, until=None):
    """One life of an agent: to the end, or to a kill just after its line of round `until`."""
    name = SITES[agent.number]
    with Writer(folder / name) as writer:
        node = Node(
            agent, ROUNDS, wire.transport(agent.number), folder / name, EVERY, LIMITS, run_inline
        )
        diary = SiteRunFolder(writer, node, origin(name), "rounds = 7\n")

        def record_evaluation(progress):
            diary.record_evaluation(progress)
            if progress.t == until:
                raise Killed

        node.on_round = record_evaluation
        wire.nodes[agent.number] = node
        if until is None:
            with diary.record_outcome():
                return await node.run()
        with pytest.raises(Killed):
            await node.run()
        del wire.nodes[agent.number]


def run(folder, killed=()):
    async def lives(wire, agent):
        for until in killed if agent.number == 1 else ():
            await life(wire, agent, folder, until)
            assert open_run(folder / SITES[1]).manifest["status"] == "interrupted"  # by its lock
        await life(wire, agent, folder)

    async def everyone():
        wire = InProcessNetwork()
        await asyncio.gather(*(lives(wire, agent) for agent in team()))

    with without_optimizations():
        run_simulated(everyone())
    return open_runs([folder])


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calm")
    run(folder)
    return folder


@cache
def simulated():
    problem = whole()
    with without_optimizations():
        return diamond.simulate(
            problem, team()[0].network, team()[0].algorithm, ROUNDS, every=EVERY
        )


@cache
def whole():
    """The problem with the rows of all agents."""
    first = team()[0].problem
    rows = {part: [agent.problem.rows[part][0] for agent in team()] for part in first.rows}
    return with_rows(first, rows)


@pytest.mark.wide
def test_the_folder_has_the_measures_of_the_simulation(calm):
    wanted = simulated()
    for i, name in enumerate(SITES):
        found = open_run(calm / name)
        assert [line["round"] for line in found.lines] == AT
        for key in ("local_loss", "lower_error"):
            values = [line[key] for line in found.lines]
            np.testing.assert_allclose(values, wanted.per_agent[key][:, i], rtol=1e-9, atol=1e-14)
            assert [line["agents"][key][i] for line in found.lines] == values
            assert all(np.isnan(line["agents"][key][i - 1]) for line in found.lines)
        for key, spent in wanted.costs.items():
            assert found.last_evaluation[key] == spent[i] == found.manifest["costs"][key][i]
    sent = sum(open_run(calm / name).last_evaluation["bytes"] for name in SITES)
    assert sent == wanted.history["bytes"][-1]
    messages = sum(open_run(calm / name).manifest["messages"] for name in SITES)
    assert messages == wanted.messages
    for i, j, both in open_run(calm / "south").manifest["traffic"]:
        assert wanted.traffic[i, j] == both


@pytest.mark.wide
def test_disagreement_is_that_of_the_last_messages(calm):
    path = progress_by_round(whole(), team()[0].network, team()[0].algorithm, ROUNDS)
    heard = {0: [0, 1], 1: [0, 1, 2], 2: [1, 2]}
    for i, name in enumerate(SITES):
        for line in open_run(calm / name).lines[1:]:
            x = np.asarray(path[line["round"] - 1].state.x)
            wanted = np.sum((x[i] - x[heard[i]].mean(0)) ** 2)
            assert line["disagreement"] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.wide
@pytest.mark.parametrize("killed", [(0,), (1, 3), (6,), (6, 7)])
def test_a_killed_site_writes_the_lines_of_one_that_was_not(tmp_path, calm, killed):
    run(tmp_path, killed)
    for name in SITES:
        one, other = open_run(tmp_path / name), open_run(calm / name)
        assert one.manifest["status"] == "finished"
        assert one.manifest["digest"] == other.manifest["digest"] == one.digest()
        times = [line["seconds"] for line in one.lines]
        assert times == sorted(times)
        assert all(line["waited"] <= line["seconds"] for line in one.lines)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (FloatingPointError("agent 0 diverged"), "diverged", "agent 0 diverged"),
        (RunFailed("agent 2 diverged"), "diverged", "agent 2 diverged"),
        (KeyboardInterrupt(), "interrupted", ""),
        (OSError("disk full"), "interrupted", "OSError: disk full"),
    ],
)
def test_the_manifest_has_the_outcome_of_the_run(tmp_path, error, status, message):
    agent = team()[0]
    with Writer(tmp_path) as writer, without_optimizations():
        diary = SiteRunFolder(
            writer, Node(agent, 7, InProcessNetwork().transport(0)), origin("north"), ""
        )
        with pytest.raises(type(error)), diary.record_outcome():
            diary.record_evaluation(agent.initial_progress())
            raise error
    manifest = open_run(tmp_path).manifest
    assert (manifest["status"], manifest["message"]) == (status, message)


def test_show_list_and_report_read_it(calm):
    invoke = lambda *words: CliRunner().invoke(cli.app, [*map(str, words)])
    table = json.loads(invoke("show", calm, "--json").stdout)["runs"]
    assert [row["run"] for row in table] == SITES and table[0]["local_loss"] > 0
    shown = invoke("show", calm).stdout.splitlines()
    assert shown[0].split() == (
        "run local loss lower error disagreement samples MB seconds waited".split()
    )
    assert "local loss" in invoke("list", calm).stdout
    assert invoke("show", calm, "--verify").exit_code == 0
    assert invoke("show", calm / "south").exit_code == 0
    found = collect_report_data([calm])
    assert [group["title"] for group in found["groups"]] == [f"GT-SGD at {name}" for name in SITES]
    assert len({group["colour"] for group in found["groups"]}) == 3
    assert found["axes"]["bytes"] == "bytes sent by the site"
    keys = [measure["key"] for measure in found["measures"]]
    assert keys == ["local_loss", "lower_error", "disagreement", "solver_error", "waited"]
    page = invoke("report", calm, "--out", calm / "report.html")
    assert page.exit_code == 0 and "GT-SGD at west" in (calm / "report.html").read_text()


def test_tables_of_a_site_have_its_name_above_its_column(calm, tmp_path):
    found = open_run(calm / "west")
    x, y, _ = export_solution(found, "csv", tmp_path)
    assert x.read_text().splitlines()[0] == "entry,mean,west"
    assert y.read_text().splitlines()[0] == "entry,west"
    named = found.manifest["network"] | {"sites": SITES}
    assert agent_columns({"network": named}, 3) == SITES  # of a run that has all sites
    assert agent_columns({"network": {}}, 2) == ["agent 0", "agent 1"]
