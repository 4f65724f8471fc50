"""Runs with crashes of agents and faults of the network end in the bits of a run without faults."""

import asyncio
import gc
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from crash_cluster import (
    EVERY,
    LIMITS,
    ROUNDS,
    Cluster,
    Killed,
    all_killed_every,
    killed_at,
    team,
    watch_instants,
)
from helpers import same_bits
from lockstep_agents import build_algorithm, run_lockstep

from diamond.engine.site_rehearsal import rehearse
from diamond.sites.memory.outbox import MessageDiscarded, Outbox
from diamond.sites.memory.site_checkpoint import OtherRun
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.errors import Refused, RunFailed, Unreachable
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.sites.transport.messages import (
    Greeting,
    GreetingAnswer,
    MessageRequest,
    RollbackNotice,
)
from diamond.sites.transport.timeouts import NeighbourTimeout
from diamond.sites.transport.wire_format import (
    FrameError,
    pack,
)

VICTIM = 1  # in the middle of a path of three


@cache
def run_without_faults(order="paper"):
    return run_lockstep(team(order), ROUNDS)


def ends_well(cluster, order="paper"):
    found = cluster.run()
    assert [p.t for p in found] == [ROUNDS] * len(found)
    assert all(
        same_bits(one, other) for one, other in zip(found, run_without_faults(order), strict=True)
    )
    assert cluster.most_messages <= 2 * EVERY + 2  # messages kept


@pytest.mark.wide
@pytest.mark.parametrize("order", ["paper", "atc"])
def test_without_faults(tmp_path, order):
    cluster = Cluster(tmp_path, order)
    ends_well(cluster, order)
    assert cluster.deaths == 0


@pytest.mark.wide
@pytest.mark.parametrize(
    ("order", "apart"),
    [("paper", 3), ("atc", 5), pytest.param("paper", 1, marks=pytest.mark.slow)],
)
def test_killed_at_every_instant(tmp_path, monkeypatch, order, apart):
    total = instants(tmp_path / "calm", monkeypatch, order)
    assert total > 50
    for n in range(0, total, apart):
        cluster = Cluster(tmp_path / str(n), order)
        with killed_at(monkeypatch, VICTIM, n):
            ends_well(cluster, order)
        assert cluster.deaths + cluster.late_kills == 1, n


def instants(folder, monkeypatch, order):
    """How many there are for the victim in a run without faults."""
    seen = []
    run_without_faults(order)  # not among those watched
    ends_well(Cluster(folder / "first", order), order)  # the first one also compiles
    with watch_instants(monkeypatch, lambda agent, label: seen.append(agent)):
        ends_well(Cluster(folder / "watched", order), order)
    return seen.count(VICTIM)


def test_all_killed_at_once_again_and_again(tmp_path, monkeypatch):
    run_without_faults("paper")  # not among those killed
    cluster = Cluster(tmp_path)
    with all_killed_every(monkeypatch, cluster, 45):
        ends_well(cluster)
    assert cluster.deaths >= 9


class Trouble:
    """A fault that begins when the victim comes to `phase` after some steps."""

    def __init__(self, kind, phase, folder, later=5):
        self.kind, self.phase, self.later = kind, phase, later
        self.cluster = Cluster(folder, faults=[self.hop])
        self.begun, self.hits, self.steps = None, 0, 0
        self.random = np.random.default_rng(0)

    def on_instant(self, agent, label):
        self.steps += agent == VICTIM and label == "finish_exchange"
        phases = {"outgoing_arrays": "before", "finish_exchange": "after"}
        phases["checkpoint"] = "checkpoint"
        if agent == VICTIM and self.steps >= self.later and phases.get(label) == self.phase:
            self.begin()

    def begin(self):
        if self.begun is None:
            self.begun = asyncio.get_running_loop().time()
            if self.kind in ("kill", "old checkpoint"):
                if self.kind == "old checkpoint":
                    newest = max((self.cluster.folder / str(VICTIM)).rglob("*.safetensors"))
                    newest.write_bytes(newest.read_bytes()[:-1])
                raise Killed

    async def hop(self, hop, content):
        if VICTIM not in hop[:2]:
            return content
        transfer = hop.receiver == VICTIM and hop.is_response and self.steps >= self.later
        if transfer and self.phase == "transfer" and self.begun is None:
            try:
                self.begin()
            except Killed:
                self.cluster.kill(VICTIM)
                raise Unreachable("killed while it answered") from None
        return content if self.begun is None else await self.disturb(hop, content)

    async def disturb(self, hop, content):
        left = self.begun + 20 - asyncio.get_running_loop().time()
        self.hits += 1
        if self.kind == "stop" and left > 0:
            await asyncio.sleep(left)
        elif self.kind == "cut" and left > 0:
            raise Unreachable("the link is cut")
        elif self.kind == "delay":
            await asyncio.sleep(0.5)
        elif self.kind == "duplicate" and not hop.is_response:
            again = self.cluster.wire.nodes[hop.receiver].answer_request(hop.sender, content)
            asyncio.ensure_future(again).add_done_callback(lambda done: done.exception())
        elif self.kind == "reorder":
            await asyncio.sleep(float(self.random.uniform(0, 3)))
        elif self.kind == "truncate" and self.hits < 6:
            return content[: len(content) // 2]
        elif self.kind == "corrupt" and self.hits < 6 and content:
            place = len(content) - 9
            return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        return content


KINDS = ["kill", "stop", "cut", "delay", "duplicate", "reorder", "truncate", "corrupt"]


@pytest.mark.wide(keep=["cut-checkpoint"])
@pytest.mark.parametrize("phase", ["before", "transfer", "after", "checkpoint"])
@pytest.mark.parametrize("kind", [*KINDS, "old checkpoint"])
def test_the_matrix_of_faults(tmp_path, monkeypatch, kind, phase):
    trouble = Trouble(kind, phase, tmp_path)
    with watch_instants(monkeypatch, trouble.on_instant):
        ends_well(trouble.cluster)
    assert trouble.begun is not None
    assert trouble.hits > 0 or trouble.cluster.deaths == 1
    assert trouble.cluster.deaths == (kind in ("kill", "old checkpoint"))


def test_a_damaged_first_checkpoint_restarts_the_run(tmp_path, monkeypatch):
    trouble = Trouble("old checkpoint", "after", tmp_path, later=EVERY + 1)
    with watch_instants(monkeypatch, trouble.on_instant):
        ends_well(trouble.cluster)
    assert trouble.cluster.deaths == 1
    assert len(list(tmp_path.rglob("*.damaged-1"))) == 2  # its arrays, and what vouches for them


def test_a_start_without_readable_checkpoints_is_refused(tmp_path):
    Cluster(tmp_path).run()
    for path in (tmp_path / str(VICTIM) / "checkpoint").glob("*.json"):
        path.write_bytes(path.read_bytes()[:-9])
    for _ in range(2):  # once damaged, then set aside
        with pytest.raises(OtherRun, match=r"none of its checkpoints can be read \(.*; restore"):
            Cluster(tmp_path).run()


def test_an_absent_neighbour_is_named_with_the_time_waited(tmp_path):
    wire = InProcessNetwork()
    agent = team()[0]
    node = Node(agent, ROUNDS, wire.transport(0), tmp_path, EVERY, LIMITS, run_inline)
    error = r"waited 36\d\d s for the greeting of agent 1 \(agent 1 is down\)"
    with pytest.raises(NeighbourTimeout, match=error):
        run_simulated(node.run())


def refusal(request, sender=0, asked=1):
    """What an agent says to a request that it refuses."""

    async def ask():
        agent = team()[asked]
        node = Node(
            agent, ROUNDS, InProcessNetwork().transport(asked), None, EVERY, LIMITS, run_inline
        )
        outbox = node.service.outbox
        outbox.durable = dict.fromkeys(outbox.durable, 4)
        await node.answer_request(sender, request(node))

    with pytest.raises((Refused, FrameError)) as error:
        run_simulated(ask())
    return str(error.value)


def ask(**changes):
    return lambda node: replace(MessageRequest(node.run_digest, 0, 5, 4), **changes).encode()


def hello(**changes):
    return lambda node: pack({"kind": "hello", "sender": 0, "parts": node.digests | changes})


@pytest.mark.parametrize(
    ("request_", "options", "reason"),
    [
        (ask(), {"sender": 2, "asked": 0}, "agent 2 is no neighbour of agent 0"),
        (ask(sender=2), {}, "agent 0 asks in the name of agent 2"),
        (ask(run="beef"), {}, "runs something else: another digest"),
        (ask(round=ROUNDS + 1), {}, f"round {ROUNDS + 1} is not to come"),
        (ask(round=3, durable=0), {}, "round 3 is no longer kept"),
        (ask(round=3, durable=4), {}, "no such one"),
        (hello(rounds="9"), {}, rf"another rounds \({ROUNDS} at agent 1, 9 at agent 0\)"),
        (hello(problem="f" * 64), {}, "something else: another problem$"),
        (lambda node: b"\0" * 10**6, {}, "1000000 bytes; at most"),
    ],
)
def test_a_request_is_refused_with_its_reason(request_, options, reason):
    assert re.search(reason, refusal(request_, **options))


def test_a_running_agent_answers_a_test_that_compares_what_is_run():
    async def compare():
        node = Node(
            team()[1], ROUNDS, InProcessNetwork().transport(1), None, EVERY, LIMITS, run_inline
        )
        return await node.answer_request(0, Greeting(0, node.digests).encode())

    assert GreetingAnswer.read(run_simulated(compare())) == GreetingAnswer(0, 0)


def test_when_an_agent_diverges_all_stop_and_name_it(tmp_path, monkeypatch):
    finish_exchange = Agent.finish_exchange

    def broken(self, progress, exchange, local_result, messages):
        if self.number == 2 and progress.t == 3:
            messages = messages | {2: [np.full_like(a, np.inf) for a in messages[2]]}
        return finish_exchange(self, progress, exchange, local_result, messages)

    monkeypatch.setattr(Agent, "finish_exchange", broken)
    cluster = Cluster(tmp_path)

    async def everyone():
        lives = (cluster.run_lives(agent) for agent in cluster.team)
        return await asyncio.gather(*lives, return_exceptions=True)

    found = run_simulated(everyone())
    assert all(str(error).startswith("agent 2 diverged in round 3") for error in found)
    assert [type(error) for error in found] == [RunFailed, RunFailed, FloatingPointError]


def test_a_folder_of_another_run_is_refused(tmp_path):
    Cluster(tmp_path).run()
    with pytest.raises(OtherRun, match="checkpoint of another run"):
        Cluster(tmp_path, "atc").run()


def test_a_message_is_kept_as_long_as_a_neighbour_may_request_it():
    outbox = Outbox([0, 2])
    for t in range(6):
        outbox.add_message(t, bytes([t]))
        outbox.add_message(t, bytes([t + 10]), consensus_step=2)
    rounds_kept = lambda: sorted({round for round, _ in outbox.frames})
    outbox.record_durable(0, 4)
    assert rounds_kept() == [0, 1, 2, 3, 4, 5]  # agent 2 may be set back to the start
    outbox.record_durable(2, 3)
    assert rounds_kept() == [3, 4, 5]
    outbox.record_durable(2, 1)  # an old request, late
    assert rounds_kept() == [3, 4, 5] and outbox.get(3) == b"\3" and outbox.get(6) is None
    assert outbox.get(3, consensus_step=2) == b"\x0d" and outbox.get(3, consensus_step=1) is None
    with pytest.raises(MessageDiscarded, match="round 2 is no longer kept, only rounds from 3 on"):
        outbox.get(2)
    again = Outbox([0, 2])
    again.restore(outbox.frames, {"0": 4, "2": 3}, complete_from=4)
    assert again.frames == outbox.frames and again.durable == outbox.durable
    again.durable, again.frames = {0: 2, 2: 2}, {}
    with pytest.raises(MessageDiscarded, match="round 3 is damaged on the disk"):
        again.get(3)


@pytest.mark.wide
def test_a_rehearsal_is_the_same_run_and_cancels_all_subscriptions(monkeypatch, caplog):
    problems = [agent.problem for agent in team()]
    algorithm = build_algorithm("gt_sgd", order="paper")
    close = asyncio.Runner.close
    monkeypatch.setattr(asyncio.Runner, "close", lambda runner: (gc.collect(), close(runner)))
    found = rehearse(problems, team()[0].network, algorithm, ROUNDS)
    assert "destroyed" not in caplog.text  # orders that still stood when all rounds were made
    assert all(
        same_bits(one, other) for one, other in zip(found, run_without_faults(), strict=True)
    )
    with pytest.raises(ValueError, match="2 problems for a network of 3"):
        rehearse(problems[:2], team()[0].network, algorithm, ROUNDS)


def test_a_notice_of_a_rollback_is_refused_where_no_run_rolls_back():
    """A member could otherwise send all its neighbours to an exchange that does not exist."""
    node = Node(team()[0], ROUNDS, InProcessNetwork().transport(0), run_blocking=run_inline)
    notice = RollbackNotice(node.run_digest, 1, 3).encode()
    with pytest.raises(FrameError, match="which this run excludes"):
        node.client.decode_message(1, 3, notice)
