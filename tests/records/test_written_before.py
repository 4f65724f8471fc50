"""Folders of an earlier version are read, shown and extended."""

import asyncio
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import command
from fast_compilation import skip_loss_checks, without_optimizations

import diamond
from diamond import catalogue, hypergradient, schedules
from diamond.network import channels
from diamond.records.run_inputs import check_same
from diamond.sites.rounds import node as nodes
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

FOLDERS = Path(__file__).with_name("written_before")
EXPECTED = json.loads((FOLDERS / "expected.json").read_text())  # x and y after 24 rounds
DESCRIPTIONS = json.loads((FOLDERS / "descriptions.json").read_text())
# Rows of the quadratic problem come from LAPACK, which rounds in another way on other processors.
OTHER_ROWS = "the problem of .* cannot be rebuilt|the train and valid rows of the problem"
other_processor = pytest.mark.filterwarnings(f"ignore:({OTHER_ROWS}):RuntimeWarning")
STOPPED = [
    "given_steps",
    "learned_steps",
    "common_channels",
    "drops",
    "composed",
    "comparison/dsgd",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(FOLDERS, tmp_path, dirs_exist_ok=True)
    skip_loss_checks(monkeypatch)
    with without_optimizations():
        yield tmp_path


# Random rows are made by a QR decomposition: their last bits depend on the BLAS of this numpy.
with_other_rows = pytest.mark.filterwarnings("ignore:.*rows have changed since:RuntimeWarning")


def small_problem():
    return diamond.gallery.quadratic(agents=3, upper=2, lower=2, rows=6)


def assert_expected(name, x, y):
    for letter, values in {"x": x, "y": y}.items():
        np.testing.assert_allclose(values, EXPECTED[name][letter], rtol=1e-6)


@other_processor
@pytest.mark.quick
@with_other_rows
def test_a_finished_run_is_loaded_and_shown(folder, float32):
    run = diamond.load(folder / "finished")
    assert run.rounds == 60 and run.status == "finished" and run.network.agents == 3
    np.testing.assert_allclose(run.history["upper_loss"][-1], 5.833, atol=1e-3)
    assert run.last_x.shape == run.state.x.shape == (3, 2) and (run.last_x == run.state.x).all()
    assert run.resolved["curvature"] == 1.5
    assert "finished" in command("show", folder / "finished").output


@other_processor
@pytest.mark.quick
def test_a_stopped_run_whose_bound_was_measured_is_refused(folder, float32):
    """It divided by an L that was measured before round 0; today L is learned, and in the state."""
    refusal = command("resume", folder / "stopped", "--changed-data", "--quiet", code=2)
    assert "these arrays are of another problem, algorithm or precision" in refusal.output
    assert diamond.load(folder / "stopped").rounds > 0  # its rounds can still be read


@other_processor
@pytest.mark.wide
def test_a_stopped_run_of_solve_with_learned_steps_is_refused(folder):
    """Today `solve` takes quasi-Newton steps on this problem, from a state of its own."""
    refusal = command("resume", folder / "solve", "--changed-data", "--quiet", code=2)
    assert "start the run again in a new folder" in refusal.output
    assert diamond.load(folder / "solve").rounds == 12  # its rounds can still be read


@other_processor
@pytest.mark.wide
@pytest.mark.parametrize("name", STOPPED)
def test_a_stopped_run_is_loaded_shown_and_resumed(folder, name):
    run = diamond.load(folder / name)
    assert run.rounds == 12 and run.status == "interrupted" and run.x.shape == (3, 2)
    assert "interrupted" in command("show", folder / name).output
    resumed = folder / name if "/" not in name else (folder / name).parent
    command("resume", resumed, "--changed-data", "--quiet")
    run = diamond.load(folder / name)
    assert run.rounds == 24 and run.status == "finished"
    assert_expected(name, run.last_x, run.last_y)


@other_processor
@pytest.mark.quick
@with_other_rows
def test_a_comparison_is_loaded_and_shown(folder):
    comparison = diamond.load(folder / "comparison")
    run = comparison.runs["diamond", 0]
    assert len(comparison.runs) == 2 and run.rounds == 24
    assert_expected("comparison/diamond", run.last_x, run.last_y)
    assert "dsgd" in command("show", folder / "comparison").output


@other_processor
@pytest.mark.wide
def test_a_run_saved_from_python_is_loaded_and_extended(folder):
    problem, network = small_problem(), diamond.network.ring(3)
    saved = diamond.load(folder / "saved", problem)
    assert saved.rounds == 12
    options = {"rounds": 24, "every": 4, "resume": saved, "progress": False}
    longer = diamond.simulate(problem, network, diamond.k_free(batch=2), **options)
    assert_expected("saved", longer.last_x, longer.last_y)


def test_sites_resume_from_their_checkpoints_and_messages(folder, monkeypatch):
    """The digest of the run is that of the folders: it covers versions, which may differ."""
    checkpoint = folder / "sites" / "site0" / "checkpoint" / "0000000012.json"
    run_digest = json.loads(checkpoint.read_text())["body"]["notes"]["run"]
    monkeypatch.setattr(nodes, "compute_digests", lambda *inputs: {"run": run_digest})
    wire = InProcessNetwork()
    problem, begun = small_problem(), {}
    for i in range(problem.agents):
        rows = {part: [rows[i]] for part, rows in problem.rows.items() if part != "test"}
        losses = problem.upper, problem.lower, problem.init
        site_problem = diamond.Problem(*losses, **rows, shuffle=False, constant=problem.constant)
        algorithm = diamond.gt_sgd(batch=2)
        agent = Agent(site_problem, diamond.network.ring(3), algorithm, i)
        path = folder / "sites" / f"site{agent.number}"
        inputs = agent, 24, wire.transport(agent.number), path, 4
        node = nodes.Node(*inputs, run_blocking=run_inline)
        node.on_round = lambda progress, i=i: begun.setdefault(i, progress.t)
        wire.nodes[agent.number] = node
        assert "interrupted" in command("show", path).output

    async def run_all():
        try:
            return await asyncio.gather(*(node.run() for node in wire.nodes.values()))
        finally:
            wire.close()

    for i, progress in enumerate(run_simulated(run_all())):
        assert begun[i] == 12 and progress.t == 24
        assert_expected(f"sites/site{i}", progress.state.x, progress.state.y)


@pytest.mark.quick
@pytest.mark.parametrize("name", [name for name in DESCRIPTIONS if name not in ("ring", "solve")])
def test_descriptions_of_networks_and_methods_still_apply(name):
    """`resume` compares the description in a folder with that of the arguments."""
    network, algorithm = described_run(name)
    before = {"network": DESCRIPTIONS["ring"]} | DESCRIPTIONS[name]
    assert jax.tree.leaves(before) and check_same(before, network, algorithm) is None


def described_run(name):
    """Return the network and the algorithm that an entry of descriptions.json is about."""
    kind, _, rest = name.partition(" ")
    network, algorithm = diamond.network.ring(3), diamond.gt_sgd(batch=2)
    if kind in catalogue.names():
        algorithm = catalogue.maker(kind)(batch=2)
    elif kind == "given":
        algorithm = diamond.diamond(0.05, 0.2, 0.3, 0.3, batch=2)
    elif kind == "composed":
        directions, estimator, x, y, order = rest.split(" ", 4)
        period = 4 if estimator == "recursive" else None
        options = {"update_order": order, "period": period, "batch": 2}
        algorithm = diamond.compose(directions, estimator, x, y, **options)
    elif kind == "hypergradient":
        kind, options = rest.split(" ", 1)
        estimator = getattr(hypergradient, kind)(*json.loads(options))
        algorithm = diamond.dsgd(0.1, 0.2, 2, estimator)
    elif kind == "step":
        algorithm = diamond.dsgd(eval(rest, vars(schedules)), 0.2, 2)
    elif kind == "steps":
        algorithm = diamond.diamond(batch=2, steps=schedules.paper(0.3, 3, 10, 10))
    elif kind == "channel":
        network = network.through(eval(rest, vars(channels)))
    elif kind == "links":
        times = {"latency": 0.01, "compute": 0.005, "slow_chance": 0.1, "slow_factor": 2}
        network = network.with_links(rate=1e6, loss=0.05, **times)
    elif kind == "one_peer":
        network = diamond.network.one_peer(4)
    return network, algorithm
