"""Copies and kills at random moments: a site continues in the same bits, or stops and says why."""

import asyncio
import itertools
import random
import shutil

import pytest
from changing_cluster import ChangingCluster, check_bits
from crash_cluster import ROUNDS, Cluster, Killed, Mortal, watch_instants
from crash_cluster import team as team3
from helpers import same_bits
from lockstep_agents import build_algorithm, run_lockstep
from test_restored_sites import LOST_ROUND, RESTORED, Federation, run_undisturbed

from diamond.privacy import ledger
from diamond.records import checkpoint_file
from diamond.sites.memory import edge_journal
from diamond.sites.memory.epoch_entry import ENTRY_FOLDER
from diamond.sites.memory.site_checkpoint import OtherRun

pytestmark = pytest.mark.slow


class CopiedWhileRunning(Federation):
    """The backup is made file by file while the site runs, as by a program that copies."""

    def __init__(self, *fixed, moments):
        super().__init__(*fixed)
        self.moments = moments  # random numbers
        self.first, self.waiting = self.moments.randrange(10, 120), None

    def copy_some(self, agent, label):
        if agent != RESTORED or self.is_lost.is_set():
            return
        self.first -= 1
        place = self.folder / str(RESTORED)
        if self.first > 0 or not place.exists():
            return
        if self.waiting is None:
            self.waiting = [path for path in place.rglob("*") if path.is_file()]
            self.moments.shuffle(self.waiting)
        for _ in range(min(len(self.waiting), self.moments.randrange(3))):
            self.copy(self.waiting.pop())

    def copy(self, path):
        copy = self.folder / "backup" / path.relative_to(self.folder / str(RESTORED))
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():  # it may have been removed since it was listed
            shutil.copy(path, copy)

    async def pause(self, node):
        if node.t < LOST_ROUND:
            return
        for path in self.waiting or ():
            self.copy(path)
        (self.folder / "backup").mkdir(exist_ok=True)
        await super().pause(node)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["plain", "signed", "continue"])
def test_a_copy_of_a_running_site_continues_or_names_the_remedy(tmp_path, monkeypatch, kind, seed):
    federation = CopiedWhileRunning(
        tmp_path, kind, seed % 2 == 0, False, moments=random.Random(seed)
    )
    try:
        with watch_instants(monkeypatch, federation.copy_some):
            ends = federation.run(monkeypatch)
    except OtherRun as error:
        assert "--onward" in str(error) or "--restart" in str(error)
        assert federation.neighbours_wait  # the remedy is still possible
        return
    expected = run_undisturbed(tmp_path / "undisturbed", kind)
    assert all(same_bits(a.state, b.state) for a, b in zip(ends, expected, strict=True))


def raise_once(monkeypatch, owner, name, at, write_part, counts=lambda *arguments: True):
    """Die in call number `at` of a function that writes, after a part of what it writes.

    The dead process writes nothing more: its first argument is not used again.
    """
    original, calls, dead = getattr(owner, name), itertools.count(), []

    def dying(*arguments):
        if dead and arguments[0] is dead[0]:
            raise Killed
        if counts(*arguments) and next(calls) == at:
            dead.append(arguments[0])
            write_part(*arguments)
            raise Killed
        original(*arguments)

    monkeypatch.setattr(owner, name, dying)


class Continuing(Mortal):
    """A node whose rounds continue without absent neighbours, and which has a journal."""

    def __post_init__(self):
        self.missing = "continue"
        super().__post_init__()


@pytest.mark.parametrize("seed", range(12))
def test_killed_in_the_middle_of_a_line_of_a_journal(tmp_path, monkeypatch, seed):
    moments = random.Random(seed)

    def write_part(stream, entries):
        stream.write(entries[: moments.randrange(len(entries) + 1)])
        stream.flush()

    kinds = dict.fromkeys(range(3), Continuing)
    cluster = Cluster(tmp_path, kinds=kinds)
    at = moments.randrange(4 * ROUNDS)
    raise_once(monkeypatch, edge_journal, "append_entries", at, write_part)
    found = cluster.run()
    assert cluster.deaths == 1
    assert all(same_bits(a, b) for a, b in zip(found, run_lockstep(team3(), ROUNDS), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_killed_in_the_middle_of_a_line_of_a_ledger(tmp_path, monkeypatch, seed):
    pytest.importorskip("dp_accounting")
    from test_private_sites import Private, bundle_of, lines_of, make_agents

    moments = random.Random(seed)

    def write_part(files, entry):
        line, _ = ledger._chained(entry, files.head)
        with files.path.open("ab") as stream:
            stream.write(line[: moments.randrange(len(line) + 1)])

    cluster = Cluster(tmp_path, agents=make_agents(), kinds=dict.fromkeys(range(3), Private))
    at = moments.randrange(3 * ROUNDS)
    is_message = lambda files, entry: "message" in entry
    raise_once(monkeypatch, ledger.LedgerFiles, "append", at, write_part, is_message)
    found = cluster.run()
    assert cluster.deaths == 1
    undisturbed = run_lockstep(make_agents(), ROUNDS)
    assert all(same_bits(a, b) for a, b in zip(found, undisturbed, strict=True))
    for agent in cluster.team:  # each message once: none is free, and none is paid for twice
        entries = lines_of(bundle_of(tmp_path / str(agent.number)))
        assert [entry["round"] for entry in entries] == list(range(ROUNDS))


class MortalEpochs(ChangingCluster):
    """Sites whose members change, and which also die by an error of a write."""

    async def run_lives(self, number):
        while True:
            try:
                return await super().run_lives(number)
            except Killed:
                self.deaths += 1
                self.wire.nodes.pop(number)
                await asyncio.sleep(self.down)


@pytest.mark.parametrize("seed", range(12))
def test_killed_in_the_middle_of_the_entry_of_an_epoch(tmp_path, monkeypatch, seed):
    moments, original = random.Random(seed), checkpoint_file.replace_file
    entries, at = itertools.count(), moments.randrange(20)

    def replace_file(path, *parts, durable=True):
        if path.parent.name == ENTRY_FOLDER and next(entries) == at:
            content = b"".join(parts)
            part = content[: moments.randrange(len(content) + 1)]
            path.with_name(path.name + ".tmp").write_bytes(part)
            if moments.random() < 0.5:
                original(path, *parts, durable=durable)  # just after it, then
            raise Killed
        original(path, *parts, durable=durable)

    monkeypatch.setattr(checkpoint_file, "replace_file", replace_file)
    cluster = MortalEpochs(tmp_path, build_algorithm("gt_sgd"))
    found = cluster.run()
    assert cluster.deaths == 1 and next(entries) > at
    check_bits(cluster, found)
