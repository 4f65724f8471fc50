"""Asynchronous rounds: known solutions at any pace, sums that are kept, and replays to the bit."""

import asyncio
import math

import numpy as np
import pytest
from absent_agents import AbsenceScenario, RecordingAgent
from helpers import build, final_progress, flat, quad, same_bits
from lockstep_agents import agents, build_algorithm, stack_states, with_own_rows

import diamond
from diamond import hypergradient as hg
from diamond.engine.site_rehearsal import rehearse
from diamond.engine.site_replay import replay
from diamond.sites.memory.edge_journal import recorded_versions
from diamond.sites.rounds.local_measures import measure_agent
from diamond.sites.rounds.node import Node
from diamond.sites.transport.timeouts import Timeouts
from diamond.sites.transport.wire_format import Envelope, FrameError, encode, pack

RING, SLOW = diamond.network.ring(4), 2
PACE = [1.0, 1.0, 10.0, 1.0]  # seconds of a round
EXACT = dict(alpha=0.05, beta=0.4, batch=2, hypergradient=hg.exact())


def own_rows(problem):
    return [with_own_rows(problem, i) for i in range(problem.agents)]


def schedule(network, seconds, end):
    """Versions of a run without delay: the last message that was sent before a round ends."""
    return [
        [
            {
                j: math.ceil((k + 1) * seconds[i] / seconds[j]) - 1
                for j in map(int, network.graph.neighbors(i))
            }
            for k in range(int(end / seconds[i]))
        ]
        for i in range(network.agents)
    ]


@pytest.mark.parametrize(
    "name, order", [("gt_sgd", "paper"), ("gt_sgd", "atc"), ("dsgd", "paper"), ("sgp", None)]
)
def test_at_equal_pace_without_delay_the_run_is_the_synchronous_one(name, order):
    algorithm = build_algorithm(name, **{"order": order} if order else {})
    sites = replay(own_rows(quad()), RING, algorithm, schedule(RING, [1.0] * 4, 12))
    wanted = final_progress(quad(), RING, algorithm, 12)
    state = stack_states([site.progress for site in sites])
    np.testing.assert_allclose(flat(state), flat(wanted.state), rtol=0, atol=1e-12)
    np.testing.assert_array_equal([site.progress.spent for site in sites], wanted.spent)


def conserved_sums(progress, network):
    """The sum of trackers with all that is under way, and the sum of directions."""
    total = sum(np.asarray(p.state.u) for p in progress)
    for i, own in enumerate(progress):
        neighbours = sorted(map(int, network.graph.neighbors(i)))
        for j, link in zip(neighbours, own.channel_states):
            k = sorted(map(int, network.graph.neighbors(j))).index(i)
            (used,) = progress[j].channel_states[k].received[1:]
            total = total + network.weights[j, i] * (np.asarray(link.given[0]) - used)
    return total, sum(np.asarray(p.state.p) for p in progress)


def solved(name, end, order="paper"):
    """The problem, a run with one slow agent, and the error of x in each agent."""
    problem = quad(agents=4, rows=4, noise=0.0)
    versions = schedule(RING, PACE, end)
    algorithm = build(name, **EXACT, order=order)
    sites = replay(own_rows(problem), RING, algorithm, versions, every=1000)
    return problem, algorithm, [site.progress for site in sites]


@pytest.mark.parametrize("order", ["paper", pytest.param("atc", marks=pytest.mark.wide)])
def test_tracking_reaches_the_solution_although_one_agent_is_ten_times_slower(order):
    problem, _, progress = solved("gt_sgd", 400, order)
    assert [p.t for p in progress] == [400, 400, 40, 400]
    for p in progress:
        np.testing.assert_allclose(p.state.x, problem.minimizer(), rtol=0, atol=2e-5)
    u, p = conserved_sums(progress, RING)
    np.testing.assert_allclose(u, p, rtol=0, atol=1e-12)


def test_gossip_at_any_pace_has_the_bias_of_rounds_in_step():
    problem, algorithm, progress = solved("dsgd", 400)
    fixed_point = np.asarray(final_progress(problem, RING, algorithm, 800).state.x)
    assert np.abs(fixed_point - problem.minimizer()).max() > 0.05
    for p, x in zip(progress, fixed_point):
        np.testing.assert_allclose(p.state.x, x, rtol=0, atol=1e-4)


class PacedScenario(AbsenceScenario):
    """Agents of which one is slow; all may be killed, and are there again later."""

    ROUNDS, EVERY = 30, 4

    def __init__(self, folder, name="gt_sgd", **options):
        super().__init__(folder, **options)
        self.algorithm = build_algorithm(name)
        self.team = agents(quad(), RING, self.algorithm, missing="asynchronous")
        self.histories = {}

    async def run_slowly(self, function, *args):
        if function.__name__ == "compute":
            await asyncio.sleep(PACE[function.__self__.number])
        return function(*args)

    def node(self, agent):
        number = agent.number
        fixed = RecordingAgent(agent, self), self.ROUNDS, self.wire.transport(number)
        limits = Timeouts(connect=1.0, round=4.0, give_up=900.0)
        node = Node(
            *fixed,
            self.folder / str(number),
            self.EVERY,
            limits,
            self.run_slowly,
            missing="asynchronous",
        )
        node.on_round = lambda progress: self.measure(node, progress)
        return node

    def measure(self, node, progress):
        """Measure as `SiteRunFolder` does: each round once."""
        if progress.t % self.EVERY == 0 or progress.t == node.rounds:
            messages = node.evaluation_inputs.messages
            entry = measure_agent(node.agent._agent, progress, messages)
            self.histories.setdefault(node.agent.number, {}).setdefault(progress.t, entry)

    def check_replay(self):
        """Run, and replay the journals of all agents: the same bits."""
        progress, _ = self.run()
        versions = recorded_versions(RING, [self.folder / str(i) for i in range(4)])
        sites = replay(own_rows(quad()), RING, self.algorithm, versions, every=self.EVERY)
        for i, (site, end) in enumerate(zip(sites, progress, strict=True)):
            assert site.progress.t == end.t == len(versions[i])
            assert same_bits(site.progress.state, end.state)
            assert same_bits(site.progress.spent, end.spent)
            assert same_bits(site.progress.channel_states, end.channel_states)
            assert {entry["round"]: entry for entry in site.history} == self.histories[i]
        return progress, versions


@pytest.mark.parametrize("name", ["gt_sgd", pytest.param("dsgd", marks=pytest.mark.wide)])
def test_killed_agents_never_contradict_what_they_have_sent_and_journals_repeat_the_run(
    tmp_path, name
):
    absences = [(0, 9.5, 14.0), (SLOW, 11.0, 12.5), (1, 15.2, 15.9), (0, 21.1, 22.0)]
    scenario = PacedScenario(tmp_path, name, absences=absences, cuts=[(1, SLOW, 5.0, 12.0)])
    progress, versions = scenario.check_replay()
    assert max(p.t for p in progress) == 30
    assert 3 <= progress[SLOW].t < 10 and progress[0].t < 30  # their neighbours had ended
    assert max(scenario.end_times[i] for i in (0, 1, 3)) < 45  # nobody waits for the slow one
    skipped = [b[1] - a[1] for a, b in zip(versions[SLOW], versions[SLOW][1:])]
    assert max(skipped) > 5  # it uses the latest message, not each
    if name == "gt_sgd":
        u, p = conserved_sums(progress, RING)
        np.testing.assert_allclose(u, p, rtol=0, atol=1e-12)


def test_a_rehearsal_has_a_pace_for_each_site():
    algorithm = build_algorithm("gt_sgd")
    progress = rehearse(own_rows(quad()), RING, algorithm, 20, seconds=PACE)
    assert [p.t for p in progress] == [20, 20, 3, 20]
    with pytest.raises(ValueError, match="2 seconds for a network of 4 agents"):
        rehearse(own_rows(quad()), RING, algorithm, 20, seconds=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"not all of them exist: give the versions of one run"):
        versions = schedule(RING, [1.0] * 4, 2)
        replay(own_rows(quad()), RING, algorithm, [versions[0], [{0: 7, 2: 0}], *versions[2:]])


def test_a_message_of_no_round_is_refused(tmp_path):
    scenario = PacedScenario(tmp_path)
    node = scenario.node(scenario.team[0])
    shapes = [np.zeros(spec.shape) for spec in scenario.team[0].largest_layout]
    header, content = {"kind": "message", "run": node.run_digest, "sender": 1}, b""
    for round in (True, -1, 30, "x", None):
        with pytest.raises(FrameError, match="which is no round"):
            node.latest_messages._receive(1, pack(header | {"round": round}, content))
    with pytest.raises(FrameError, match="sender is 3 where 1 belongs"):
        node.latest_messages._receive(1, encode(Envelope(node.run_digest, 3, 5), shapes))
    assert not node.latest_messages.newest
    node.latest_messages._receive(1, encode(Envelope(node.run_digest, 1, 5), shapes))
    node.latest_messages._receive(1, encode(Envelope(node.run_digest, 1, 4), shapes))
    assert node.latest_messages.newest[1].version == 5
