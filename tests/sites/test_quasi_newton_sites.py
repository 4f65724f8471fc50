"""Quasi-Newton steps among sites: the bits of the simulation to the end, after crashes too."""

import asyncio
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from crash_cluster import EVERY, LIMITS, Cluster, killed_at, watch_instants
from fast_compilation import skip_loss_checks, skip_measures, without_optimizations
from helpers import progress_by_round, same_bits
from lockstep_agents import agents, stack_states, with_own_rows

import diamond
from diamond.algorithms.parts.opening import first_order_opening
from diamond.algorithms.parts.quasi_newton import QuasiNewton
from diamond.auto.quasi_newton_control import DONE
from diamond.catalogue import maker
from diamond.engine.site_rehearsal import rehearse
from diamond.metrics.site_status import SiteStatus
from diamond.records import checkpoint_file
from diamond.records.folder_reader import open_run
from diamond.records.folder_writer import Writer
from diamond.records.manifest import RunOrigin
from diamond.sites.memory.site_run_folder import SiteRunFolder
from diamond.sites.rounds import warm_restart
from diamond.sites.rounds.message_exchange import ExchangeRunner
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.node_status import validate_status
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated

LEVELS = ["personal", "common", "none"]
NETWORKS = {
    "ring": diamond.network.ring(4),
    "star": diamond.network.star(4),
    "path": diamond.network.path(4),
}
ROUNDS = 300  # more than any run needs


@pytest.fixture(autouse=True)
def compiled_quickly(monkeypatch, float32):
    skip_loss_checks(monkeypatch)
    with without_optimizations():
        yield


@cache
def entrywise(level):
    """A problem whose derivatives are entry by entry, of the same bits in any program."""
    random = np.random.default_rng(0)

    def part():
        weights, targets = random.random((40, 3)) + 0.5, random.normal(1, 1, (40, 3))
        return {"a": weights.astype(np.float32), "b": targets.astype(np.float32)}

    mean = lambda terms: jnp.mean(jnp.sum(terms, axis=-1))
    f = lambda x, y, rows: mean((y - rows["b"]) ** 2) + 0.1 * jnp.sum(x**2)
    g = lambda x, y, rows: mean(rows["a"] * y**2 + (y * x) ** 2 - rows["b"] * y)
    alone = lambda x, rows: mean(rows["a"] * (x**2 - rows["b"]) ** 2)
    start = jnp.ones(3, jnp.float32)
    draw = lambda key: (jax.random.normal(key, (3,), jnp.float32), start)
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        if level == "none":
            return diamond.Problem(alone, None, lambda key: start, [part() for _ in range(4)])
        rows = [[part() for _ in range(4)] for _ in range(2)]
        if level == "random":
            return diamond.Problem(f, g, draw, *rows)
        return diamond.Problem(f, g, lambda key: (start, start), *rows, lower_level=level)


def own_rows(level):
    return [with_own_rows(entrywise(level), i) for i in range(4)]


def solver():
    return maker("solve")(batch=1)


@cache
def team(level, name):
    return tuple(agents(entrywise(level), NETWORKS[name], solver()))


def rehearse_beside_simulation(level, network, monkeypatch, same=ROUNDS):
    """Compare the states of all sites after the first rounds with the simulation; return both.

    `same`: number of rounds compared.
    """
    states, run_round = {}, ExchangeRunner.run_round

    async def watch(self, progress):
        after = await run_round(self, progress)
        states.setdefault(after.t, {})[self.agent.number] = after
        return after

    monkeypatch.setattr(ExchangeRunner, "run_round", watch)
    ends = rehearse(own_rows(level), network, solver(), ROUNDS)
    (rounds,) = {end.t for end in ends}
    wanted = progress_by_round(entrywise(level), network, solver(), rounds)[1:]
    found = [stack_states([states[t][i] for i in range(4)]) for t in range(1, rounds + 1)]
    for progress, state in list(zip(wanted, found, strict=True))[:same]:
        for a, b in zip(*map(jax.tree.leaves, (progress.state, state)), strict=True):
            np.testing.assert_array_equal(a, b)
    return wanted, found


@pytest.mark.wide
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("level", LEVELS)
def test_every_round_of_sites_has_the_bits_of_the_simulation(level, name, monkeypatch):
    wanted, _ = rehearse_beside_simulation(level, NETWORKS[name], monkeypatch)
    phases = [set(np.asarray(progress.state.control.phase).tolist()) for progress in wanted]
    assert phases[-1] == {DONE} and DONE not in set().union(*phases[:-1])


@pytest.mark.wide
def test_first_order_steps_of_sites_have_the_bits_of_the_simulation(monkeypatch):
    """Both then end at the same x; rounding of later sums depends on how a program is fused."""
    short = lambda batch: replace(first_order_opening(batch), rounds=30)
    monkeypatch.setattr("diamond.algorithms.parts.solver.first_order_opening", short)
    wanted, found = rehearse_beside_simulation("random", NETWORKS["ring"], monkeypatch, same=31)
    x = [np.asarray(progress.state.x)[0] for progress in wanted]
    assert not np.array_equal(x[29], x[28]) and len(wanted) > 33
    assert (np.asarray(found[-1].control.phase) == DONE).all()
    np.testing.assert_allclose(found[-1].x, wanted[-1].state.x, rtol=1e-4)


@pytest.mark.wide
@pytest.mark.parametrize(("level", "victim"), [("personal", 0), ("common", 1), ("none", 3)])
def test_killed_at_any_instant_it_ends_in_the_same_bits(level, victim, tmp_path, monkeypatch):
    everyone, seen = team(level, "path"), []
    with watch_instants(monkeypatch, lambda agent, label: seen.append(agent)):
        wanted = Cluster(tmp_path / "calm", agents=everyone, rounds=ROUNDS).run()
    total = seen.count(victim)
    assert {p.t for p in wanted} < {*range(ROUNDS)}
    for n in np.linspace(1, total - 4, 7, dtype=int).tolist():
        cluster = Cluster(tmp_path / str(n), agents=everyone, rounds=ROUNDS)
        with killed_at(monkeypatch, victim, n):
            found = cluster.run()
        assert cluster.deaths + cluster.late_kills == 1, n
        assert all(same_bits(one, other) for one, other in zip(found, wanted, strict=True)), n
    resumed, seen = Cluster(tmp_path / "calm", agents=everyone, rounds=ROUNDS), []
    with watch_instants(monkeypatch, lambda agent, label: seen.append(label)):
        assert all(map(same_bits, resumed.run(), wanted))
    assert "finish_exchange" not in seen  # a site that has ended knows it


@pytest.mark.wide
@pytest.mark.parametrize("level", LEVELS)
def test_columns_and_costs_of_sites_are_those_of_the_simulation(level, tmp_path, monkeypatch):
    skip_measures(monkeypatch)
    network, nodes = NETWORKS["ring"], []
    run = diamond.simulate(entrywise(level), network, solver(), ROUNDS, every=EVERY)

    async def live(wire, agent):
        folder = tmp_path / str(agent.number)
        with Writer(folder) as writer:
            fixed = agent, ROUNDS, wire.transport(agent.number), folder, EVERY, LIMITS, run_inline
            node = wire.nodes[agent.number] = Node(*fixed)
            nodes.append(node)
            origin = RunOrigin(str(agent.number), "trial", "entrywise", "solve", "", {}, "", {})
            diary = SiteRunFolder(writer, node, origin, "rounds = 300\n")
            node.on_round = diary.record_evaluation
            with diary.record_outcome():
                return await node.run()

    async def everyone():
        wire = InProcessNetwork()
        return await asyncio.gather(*(live(wire, agent) for agent in team(level, "ring")))

    ends = run_simulated(everyone())
    assert same_bits(run.state, stack_states(ends))
    found = [open_run(tmp_path / str(i)) for i in range(4)]
    for i, site in enumerate(found):
        assert [line["round"] for line in site.lines] == run.history["round"].tolist()
        for name in ("rows", "radius", "gradient", "accepted", "refused"):
            assert [line[name] for line in site.lines] == run.history[name].tolist(), name
        assert site.manifest["status"] == "finished"
        assert site.manifest["message"] == ends[0].end_reason
        assert site.manifest["message"].startswith("converged: the gradient is")
        for name, spent in run.costs.items():
            assert site.last_evaluation[name] == spent[i] == site.manifest["costs"][name][i]
        for a, b, count in site.manifest["traffic"]:
            assert run.traffic[a, b] == count
    assert sum(site.last_evaluation["bytes"] for site in found) == run.history["bytes"][-1]
    assert sum(site.manifest["messages"] for site in found) == run.messages
    status: SiteStatus = validate_status(nodes[0].status(), 4)
    assert status["state"] == "finished" and status["round"] == run.rounds < status["rounds"]
    assert status["message"] == ends[0].end_reason


@pytest.mark.wide
def test_a_warm_restart_starts_at_one_point(tmp_path):
    everyone, start = team("common", "path"), entrywise("common").start(0)
    for i in range(4):  # sites that have stopped in different rounds; the last has lost its point
        x, y = (np.asarray(leaf) * (1 + 0.1 * i) for leaf in start)
        arrays = {".state.x": x, ".state.y": y} if i < 3 else {}
        checkpoint_file.save(tmp_path / str(i) / "checkpoint", 5, arrays, {})
        warm_restart.prepare_folder(tmp_path / str(i))
    ends = Cluster(tmp_path, agents=everyone, rounds=ROUNDS).run()
    state = stack_states(ends)
    assert np.ptp(state.x, axis=0).max() == np.ptp(state.y, axis=0).max() == 0
    assert ends[0].end_reason.startswith("converged")


@pytest.mark.wide
def test_settings_without_exact_means_take_learned_steps_at_all_sites():
    problem, network = entrywise("personal"), NETWORKS["ring"]
    is_quasi_newton = lambda team: {isinstance(agent.template, QuasiNewton) for agent in team}
    assert is_quasi_newton(agents(problem, network, solver())) == {True}
    assert is_quasi_newton(agents(problem, network, solver(), missing="continue")) == {False}
    quantized = network.through(diamond.network.channels.quantized(8))
    for changed in (network.every(2), quantized):
        assert is_quasi_newton(agents(problem, changed, solver())) == {False}
    continuing = agents(problem, network, solver(), missing="continue")[0]
    Node(continuing, 4, InProcessNetwork().transport(0), missing="continue")
    with pytest.raises(ValueError, match="cannot combine masked sums with open numbers"):
        agents(problem, network.masked(), solver())
