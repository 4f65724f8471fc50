"""Sites restored from a backup: they contradict nothing that neighbours hold."""

import asyncio
import shutil
from functools import cache

import pytest
from crash_cluster import EVERY, LIMITS, ROUNDS
from fast_compilation import skip_loss_checks
from helpers import quad, same_bits
from lockstep_agents import agents, build_algorithm
from two_faced_site import found_signers, signing

import diamond
from diamond.sites.memory.outbox import PAGE, Receipt, Receipts, read_receipts
from diamond.sites.memory.sent_record import SentBefore, SentRecord, forget_run, frame_tag
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.sites.transport.wire_format import FrameError
from diamond.sites.trust.equivocation_proof import PROOF_FOLDER

RESTORED, BACKUP_ROUND, LOST_ROUND = 1, 2, 5
NETWORK = diamond.network.ring(4)
KINDS = ["plain", "signed", "masked", "continue"]


@cache
def team(is_masked=False, seed=0):
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = quad(agents=4, seed=seed)
    network = NETWORK.masked() if is_masked else NETWORK
    return tuple(agents(problem, network, build_algorithm("gt_sgd")))


class Federation:
    """Sites of one process; one of them returns from a backup of its run folder."""

    def __init__(self, folder, kind, keeps_record, other_bits, restarts_neighbours=False):
        self.folder, self.kind, self.team = folder, kind, team(kind == "masked")
        self.keeps_record, self.other_bits = keeps_record, other_bits
        self.restarts_neighbours = restarts_neighbours
        signers = found_signers(folder / "federation", NETWORK)[0] if kind == "signed" else {}
        self.sign, self.wire, self.tasks = signing(signers), InProcessNetwork(), {}
        self.is_lost, self.corrected = asyncio.Event(), None  # agent with other rows

    def start(self, number):
        (self.folder / "keys").mkdir(parents=True, exist_ok=True)
        has_other_rows = number == RESTORED and self.is_lost.is_set() and self.corrected is not None
        agent = self.corrected if has_other_rows else self.team[number]
        fixed = agent, ROUNDS, self.wire.transport(number), self.folder / str(number)
        node = Node(
            *fixed,
            EVERY,
            LIMITS,
            run_inline,
            missing="continue" if self.kind == "continue" else "wait",
            sign=self.sign.get(number),
            sent_path=self.folder / "keys" / str(number),
        )
        if number == RESTORED and not self.is_lost.is_set():
            node.before_round = lambda: self.pause(node)
        self.wire.nodes[number] = node
        self.tasks[number] = asyncio.ensure_future(node.run())

    async def pause(self, node):
        """Let the machine be lost after that round, with a backup of an earlier one."""
        if node.t == BACKUP_ROUND:
            await node.checkpoints.wait()
            shutil.copytree(node.folder, self.folder / "backup")
        if node.t == LOST_ROUND:
            await asyncio.sleep(1)  # its last message arrives
            self.is_lost.set()
            await asyncio.Event().wait()

    async def stop(self, number):
        self.wire.nodes.pop(number)
        self.tasks[number].cancel()
        await asyncio.gather(self.tasks[number], return_exceptions=True)

    def run(self, monkeypatch):
        return run_simulated(self._run(monkeypatch))

    async def _run(self, monkeypatch):
        for agent in self.team:
            self.start(agent.number)
        place, backup = self.folder / str(RESTORED), self.folder / "backup"
        await self.is_lost.wait()
        await self.stop(RESTORED)
        shutil.rmtree(place)
        shutil.copytree(backup, place)
        if not self.keeps_record:
            (self.folder / "keys" / str(RESTORED)).unlink()
        if self.restarts_neighbours:
            for number in (j for j in range(4) if j != RESTORED):
                await self.stop(number)
                self.start(number)
        if self.other_bits:
            original = Agent.outgoing_arrays

            def altered(agent, *inputs):
                arrays = original(agent, *inputs)
                is_restored = agent.number == RESTORED
                return [a + 1e-3 for a in arrays] if is_restored else arrays

            monkeypatch.setattr(Agent, "outgoing_arrays", altered)
        self.start(RESTORED)
        others = [j for j in range(4) if j != RESTORED]
        try:
            end = await asyncio.wait_for(asyncio.shield(self.tasks[RESTORED]), 500)
            return [end, *[await self.tasks[j] for j in others]]
        finally:
            self.neighbours_wait = not any(self.tasks[j].done() for j in others)
            for task in self.tasks.values():
                task.cancel()
            await asyncio.gather(*self.tasks.values(), return_exceptions=True)
            self.wire.close()


@pytest.mark.wide(keep=["signed-False"])
@pytest.mark.parametrize("keeps_record", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_site_that_computes_other_bits_sends_none_of_them(
    tmp_path, monkeypatch, kind, keeps_record
):
    federation = Federation(tmp_path, kind, keeps_record, other_bits=True)
    with pytest.raises(SentBefore, match=r"another message of round \d of this run \(") as error:
        federation.run(monkeypatch)
    assert (str(tmp_path / "keys" / "1") in str(error.value)) == keeps_record
    assert ("agent" in str(error.value)) != keeps_record  # a neighbour that holds it
    assert not list(tmp_path.rglob(f"{PROOF_FOLDER}/*.json"))
    assert federation.neighbours_wait  # the remedy is still possible


@pytest.mark.wide
@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_site_that_computes_the_same_bits_continues(tmp_path, monkeypatch, kind):
    ends = Federation(tmp_path, kind, keeps_record=False, other_bits=False).run(monkeypatch)
    expected = run_undisturbed(tmp_path / "undisturbed", kind)
    assert all(same_bits(a.state, b.state) for a, b in zip(ends, expected, strict=True))
    assert not list(tmp_path.rglob(f"{PROOF_FOLDER}/*.json"))


def run_undisturbed(folder, kind):
    async def everyone():
        federation = Federation(folder, kind, True, False)
        federation.is_lost.set()  # nothing is lost
        for agent in federation.team:
            federation.start(agent.number)
        order = [RESTORED, *[j for j in range(4) if j != RESTORED]]
        return [await federation.tasks[j] for j in order]

    return run_simulated(everyone())


def test_a_site_whose_rows_were_corrected_stops_and_names_how_it_rejoins(tmp_path, monkeypatch):
    federation = Federation(tmp_path, "plain", keeps_record=True, other_bits=False)
    federation.corrected = team(seed=1)[RESTORED]
    remedy = r"`diamond net change --rewind --rejoin` with its name.*or start all sites .*--onward"
    with pytest.raises(SentBefore, match=remedy):
        federation.run(monkeypatch)
    assert federation.neighbours_wait


def test_neighbours_that_restart_too_still_know_what_they_hold(tmp_path, monkeypatch):
    federation = Federation(tmp_path, "plain", False, True, restarts_neighbours=True)
    with pytest.raises(SentBefore, match=r"agent [02] holds it"):
        federation.run(monkeypatch)


def test_a_record_forgets_a_run_that_is_set_aside_but_no_key_and_no_mask(tmp_path):
    path = tmp_path / "sent.record"

    def open_record():
        record = SentRecord(path, "a run", "start again")
        record.open()
        return record

    first = open_record()
    first.record(0, 0, b"plain", 0)
    first.record(1, 0, b"signed", 1, "key of roster 1")
    path.write_bytes(path.read_bytes() + b"cut short")
    again = open_record()
    again.record(0, 0, b"plain", 0)
    with pytest.raises(SentBefore, match=r"sent\.record has its digest.*or start again"):
        again.record(0, 0, b"other", 0)
    forget_run(path)
    restarted = open_record()
    restarted.record(0, 0, b"other", 0)
    restarted.record(1, 0, b"other", 1, "key of roster 2")
    with pytest.raises(SentBefore):
        open_record().record(1, 0, b"other", 1, "key of roster 1")


def test_what_the_record_has_weighs_more_than_what_a_neighbour_reports(tmp_path):
    record = SentRecord(tmp_path / "sent.record", "a run", "start again")
    record.open()
    record.record(0, 0, b"sent", 0)
    again = SentRecord(record.path, "a run", "start again")
    again.open()
    again.add_report("west", 0, 0, b"never sent")
    again.add_report("west", 1, 0, b"sent before the power cut")
    again.record(0, 0, b"sent", 0)
    with pytest.raises(SentBefore, match=r"round 1 .*west holds it"):
        again.record(1, 0, b"other", 1)


def test_receipts_come_in_pages_and_survive_a_checkpoint():
    receipts = Receipts([0, 1])
    for t in range(PAGE + 5):
        receipts.record(1, Receipt(t, 0, frame_tag(bytes([t % 256]))))
    receipts.drop_before(1, 3)
    restored = Receipts([0, 1])
    restored.restore(receipts.to_array())
    page, has_more = restored.page(1, (4, 0))
    assert has_more and page[0].exchange == 4 and len(page) == PAGE
    rest, has_more = restored.page(1, (page[-1].exchange, 1))
    assert not has_more and [r.exchange for r in rest] == [PAGE + 4]
    assert restored.page(0, (0, 0)) == ([], False)
    assert read_receipts([list(r) for r in rest], (0, 0)) == rest
    for entries in (
        "",
        [1],
        [[1, 0]],
        [[-1, 0, b"", 0, b""]],
        [[5, 0, "", 0, b""]],
        [[3, 0, b"", 0, b""]],
    ):
        with pytest.raises(FrameError):
            read_receipts(entries, (4, 0))
