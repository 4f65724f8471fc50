"""Faults at random moments, in sites of one process: copies, other rows, and kills at a write.

Each case draws its moment from `moments` (a `random.Random`) and returns "continued", or "stopped"
if the site stopped with an error that names the command by which it continues. It fails if a
promise is broken: the bits at the end are those of the run without the fault, no neighbour receives
two messages of one exchange, a ledger of privacy only grows and pays each message once.
"""

import asyncio
import contextlib
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
from changing_cluster import CHANGES, ChangingCluster
from crash_cluster import DOWN_SECONDS, EVERY, LIMITS, ROUNDS, Cluster, Mortal
from fast_compilation import skip_loss_checks
from helpers import quad, same_bits
from lockstep_agents import agents, build_algorithm
from two_faced_site import found_signers, signing
from write_watch import Killed, WriteWatch, cancel, watching

import diamond
from diamond.privacy.ledger import LEDGER_FILE, LedgerMismatch, write_genesis
from diamond.sites.memory.epoch_entry import ENTRY_FOLDER
from diamond.sites.memory.site_checkpoint import OtherRun
from diamond.sites.rounds.node import Node
from diamond.sites.transport import wire_format
from diamond.sites.transport.errors import Refused, Unreachable
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.sites.trust.equivocation_proof import PROOF_FOLDER

VICTIM, AGENTS = 1, 4
RING = diamond.network.ring(AGENTS)
KINDS = ("plain", "signed", "masked", "continue", "private")
COMMANDS = ("--rewind --rejoin", "--onward", "--restart")  # one of which a site that stops names
SECONDS = 2 * LIMITS.give_up  # of the simulated clock


class ContradictionWatch:
    """Fault of the wire that changes nothing, and remembers what each site receives from each."""

    def __init__(self):
        self.received, self.contradictions = {}, set()

    async def __call__(self, hop, content):
        if hop.is_response:
            self.record(hop.receiver, hop.sender, content)
        return content

    def record(self, sender, receiver, frame):
        header, content = wire_format.unpack(bytes(frame), len(frame))
        if header.get("kind") == "message" and len(content):
            exchange = sender, receiver, header["run"], header["round"], header["talk"]
            if self.received.setdefault(exchange, bytes(content)) != bytes(content):
                self.contradictions.add(exchange)


def number_in(path):
    """The agent that a file is of."""
    parts = (part.removeprefix("bundle") for part in reversed(path.parts))
    return next((int(part) for part in parts if part.isdigit()), None)


@cache
def private_algorithm():
    algorithm = diamond.gt_sgd(alpha=0.05, beta=0.1, order="atc", batch=4)
    return diamond.private(algorithm, 3.0, clip=0.5, rounds=ROUNDS)


@cache
def ring_team(kind, seed=0):
    """Agents on a ring with the rows of that seed."""
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = quad(agents=AGENTS, seed=seed)
    network = RING.masked() if kind == "masked" else RING
    private = kind == "private"
    return tuple(
        agents(problem, network, private_algorithm() if private else build_algorithm("gt_sgd"))
    )


def entries_of(ledger):
    """Rounds of the messages in a ledger."""
    return [line["round"] for line in map(json.loads, ledger.splitlines()) if "message" in line]


def unreachable_once_killed(site):
    """The node, which is unreachable for a neighbour whose request it dies by."""
    answer = site.answer_request

    async def answer_request(sender, request):
        try:
            return await answer(sender, request)
        except Killed:
            raise Unreachable("killed") from None

    site.answer_request = answer_request
    return site


class RestoredSite:
    """Sites on a ring; one is copied, lost, and restored from the copy.

    `is_running`: the copy is made file by file while the site runs; else at once, while it is
    stopped by a kill. `record`: after the loss, the record of what was sent is "kept" beside the
    key, "older" as in a copy of the bundle, or "missing". `has_other_rows`: after the loss.
    """

    def __init__(self, folder, kind, moments, is_running=True, record="kept", has_other_rows=False):
        self.folder, self.kind, self.moments = folder, kind, moments
        self.root, self.copy = folder / "sites", folder / "copy"
        self.is_running, self.record, self.has_other_rows = is_running, record, has_other_rows
        signers = found_signers(folder / "federation", RING)[0] if kind == "signed" else {}
        self.sign, self.wire_watch, self.tasks = signing(signers), ContradictionWatch(), {}
        self.wire = InProcessNetwork(self.wire_watch)
        self.watch = WriteWatch(self.root, self.on_operation, self.die, number_in)
        self.count, self.is_lost, self.unsaved = 0, False, None
        self.first = self.last = None  # operations: of the copy, and of the loss

    def on_operation(self, operation):
        if self.first is None or self.is_lost or number_in(operation.path) != VICTIM:
            self.count += number_in(operation.path) == VICTIM
            return None
        self.count += 1
        if self.is_running and self.first <= self.count <= self.last:
            self.copy_some(everything=self.count == self.last)
        dies = self.count == self.last or (self.count == self.first and not self.is_running)
        return self.moments.choice([0.0, 0.5, 1.0]) if dies else None

    def copy_some(self, everything):
        """Copy some files of the run folder, which was listed when the copy began."""
        place = self.root / str(VICTIM)
        if self.unsaved is None:
            self.unsaved = [path for path in place.rglob("*") if path.is_file()]
            self.moments.shuffle(self.unsaved)
            self.copy_record()
        count = len(self.unsaved) if everything else self.moments.randrange(3)
        for _ in range(min(count, len(self.unsaved))):
            path = self.unsaved.pop()
            target = self.copy / path.relative_to(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():  # it may have been removed since it was listed
                shutil.copy(path, target)

    def copy_record(self):
        if (self.root / "keys" / str(VICTIM)).exists():
            shutil.copy(self.root / "keys" / str(VICTIM), self.folder / "record")

    def die(self, path):
        self.wire.nodes.pop(VICTIM, None)
        cancel(self.tasks[VICTIM])

    def start(self, number):
        has_other_rows = number == VICTIM and self.is_lost and self.has_other_rows
        agent = ring_team(self.kind, int(has_other_rows))[number]
        options = {"missing": "continue"} if self.kind == "continue" else {}
        if self.kind == "private":
            bundle = options["ledger_folder"] = self.root / "bundles" / str(number)
            if not bundle.exists():
                with self.watch.paused():
                    make_ledger(bundle)
        place, sent = self.root / str(number), self.root / "keys" / str(number)
        sent.parent.mkdir(parents=True, exist_ok=True)
        options |= {"sign": self.sign.get(number), "sent_path": sent}
        fixed = agent, ROUNDS, self.wire.transport(number), place, EVERY, LIMITS, run_inline

        async def live():
            node = self.wire.nodes[number] = unreachable_once_killed(Node(*fixed, **options))
            return await node.run()

        self.tasks[number] = asyncio.ensure_future(live())

    async def _run(self):
        for number in range(AGENTS):
            self.start(number)
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    life = self.tasks[VICTIM]
                    await asyncio.wait([life])
                    if VICTIM not in self.watch.dead:
                        break
                    _ = life.cancelled() or life.exception()
                    await asyncio.sleep(DOWN_SECONDS)
                    self.recover()
                ends = [await self.tasks[VICTIM]]
                return ends + [await self.tasks[j] for j in range(AGENTS) if j != VICTIM]
        finally:
            self.finished = [t for j, t in self.tasks.items() if j != VICTIM and t.done()]
            for task in self.tasks.values():
                task.cancel()
            await asyncio.gather(*self.tasks.values(), return_exceptions=True)
            self.wire.close()

    def recover(self):
        """Start the site again after its death: as it was stopped, or as the copy has it."""
        self.watch.revive(VICTIM)
        place, record = self.root / str(VICTIM), self.root / "keys" / str(VICTIM)
        if not self.is_running and not self.copy.exists():
            shutil.copytree(place, self.copy) if place.exists() else self.copy.mkdir()
            self.copy_record()
            self.count = self.first  # the loss comes `first` operations later
        else:
            self.is_lost = True
            ledger = self.root / "bundles" / str(VICTIM) / LEDGER_FILE
            self.spent = ledger.read_bytes() if ledger.exists() else b""
            shutil.rmtree(place, ignore_errors=True)
            if self.copy.exists():  # else there was nothing to copy
                shutil.copytree(self.copy, place)
            if self.record != "kept":
                record.unlink(missing_ok=True)
            if self.record == "older" and (self.folder / "record").exists():
                shutil.copy(self.folder / "record", record)
            for number, task in self.tasks.items():
                if number != VICTIM and task.done():
                    self.start(number)  # its supervisor repeats the command
        self.start(VICTIM)

    def run(self):
        with watching(self.watch):
            return run_simulated(self._run())

    def check(self):
        """Run with the fault, and check what is promised; return the outcome."""
        ends, total = run_undisturbed(self.kind)
        self.first = self.moments.randrange(1, total)
        self.last = self.moments.randrange(self.first + 1, min(total, self.first + total // 2) + 1)
        try:
            found = self.run()
            outcome = "continued"
        except (OtherRun, LedgerMismatch, Refused) as error:
            found, outcome = None, "stopped"
            assert any(command in str(error) for command in COMMANDS), error
            assert self.kind != "masked" or COMMANDS[1] not in str(error)  # which it refuses
            assert all(task.result().t == ROUNDS for task in self.finished)  # all others wait
            self.message = str(error)
        assert not self.wire_watch.contradictions
        assert not list(self.folder.rglob(f"{PROOF_FOLDER}/*.json"))
        if found is not None and not self.has_other_rows:
            assert all(same_bits(a.state, b.state) for a, b in zip(found, ends, strict=True))
        if self.kind == "private" and self.is_lost:
            ledger = (self.root / "bundles" / str(VICTIM) / LEDGER_FILE).read_bytes()
            assert ledger.startswith(self.spent[: self.spent.rfind(b"\n") + 1])
            rounds = entries_of(ledger)
            assert rounds == list(range(len(rounds)))  # no message is paid for twice
            assert found is None or len(rounds) == ROUNDS  # and none is free
        return outcome if self.is_lost else "never lost"


@cache
def run_undisturbed(kind):
    """The ends of a run without a fault, and the number of the victim's operations."""
    with tempfile.TemporaryDirectory() as folder:
        site = RestoredSite(Path(folder), kind, None)
        return site.run(), site.count


class Killing:
    """A cluster in which the site that makes operation number `at` of those that count dies."""

    def __init__(self, cluster, counts, at=None, moments=None):
        self.cluster, self.counts, self.at, self.moments = cluster, counts, at, moments
        self.wire_watch, self.count, self.deaths = ContradictionWatch(), 0, []
        cluster.wire.faults = (*cluster.wire.faults, self.wire_watch)
        self.watch = WriteWatch(cluster.folder, self.on_operation, self.die, number_in)
        cluster.watch = self.watch

    def on_operation(self, operation):
        if number_in(operation.path) is None or not self.counts(operation.path):
            return None
        self.count += 1
        return self.moments.choice([0.0, 0.5, 1.0]) if self.count == self.at else None

    def die(self, path):
        number = number_in(path)
        self.deaths.append((number, path))
        self.cluster.wire.nodes.pop(number, None)
        if number in self.cluster.tasks:
            cancel(self.cluster.tasks[number])
        asyncio.get_running_loop().call_later(DOWN_SECONDS / 2, self.watch.revive, number)

    def run(self):
        """Return the ends of all sites; what neighbours received has no contradiction."""
        with watching(self.watch):
            ends = self.cluster.run()
        assert not self.wire_watch.contradictions
        assert not list(self.cluster.folder.rglob(f"{PROOF_FOLDER}/*.json"))
        assert len(self.deaths) == (self.at is not None), (self.deaths, self.at, self.count)
        return ends


def killed_at_a_write(make, counts, folder, moments):
    """Kill the site that makes an operation of those that count; all ends have the same bits."""
    expected, total = run_without_kill(make, counts)
    killing = Killing(make(folder), counts, moments.randrange(1, total + 1), moments)
    ends = killing.run()
    assert all(same_bits(a.state, b.state) for a, b in zip(ends, expected, strict=True))
    return killing


@cache
def run_without_kill(make, counts):
    """The ends of the run, and how many operations count."""
    with tempfile.TemporaryDirectory() as folder:
        killing = Killing(make(Path(folder)), counts)
        return killing.run(), killing.count


class Private(Mortal):
    """A node with a ledger in a bundle of its own."""

    def __post_init__(self):
        self.ledger_folder = self.folder.parent / "bundles" / self.folder.name
        if not self.ledger_folder.exists():
            make_ledger(self.ledger_folder)
        super().__post_init__()


class Continuing(Mortal):
    """A node whose rounds continue without absent neighbours, and which has a journal."""

    def __post_init__(self):
        self.missing = "continue"
        super().__post_init__()


class Punctual(Continuing):
    """A node that waits for late neighbours only for some time."""

    def __post_init__(self):
        self.deadline = 20.0
        super().__post_init__()


def make_ledger(bundle):
    """Begin the ledger of a site as `net init` does."""
    bundle.mkdir(parents=True)
    write_genesis(bundle, "trial", bundle.name)


def private_cluster(folder):
    for number in range(AGENTS):
        make_ledger(folder / "bundles" / str(number))
    return Cluster(folder, agents=ring_team("private"), kinds=dict.fromkeys(range(AGENTS), Private))


def continuing_cluster(folder):
    return Cluster(folder, kinds=dict.fromkeys(range(3), Continuing))


def punctual_cluster(folder):
    return Cluster(folder, kinds=dict.fromkeys(range(3), Punctual))


class MortalEpochs:
    """Beside a cluster whose members change: its sites also die in the middle of a write."""

    async def run_lives(self, number):
        while True:
            with contextlib.suppress(Killed):
                return await super().run_lives(number)
            self.deaths += 1
            await asyncio.sleep(self.down)

    def make(self, number):
        return unreachable_once_killed(super().make(number))


class ChangingSites(MortalEpochs, ChangingCluster):
    pass


def changing_cluster(folder):
    return ChangingSites(folder, build_algorithm("gt_sgd"), CHANGES)


def is_of_ledger(path):
    return path.name.startswith("privacy")


def is_of_journal(path):
    return path.parent.name == "journal"


def begins_epoch(path):
    """Whether a file is the entry of an epoch, or is written in its first rounds."""
    return path.parent.name == ENTRY_FOLDER or any(p.startswith("epoch-") for p in path.parts)


def in_ledger(folder, moments):
    killed_at_a_write(private_cluster, is_of_ledger, folder, moments)
    for number in range(AGENTS):  # each message once: none is free, and none is paid for twice
        ledger = (folder / "bundles" / str(number) / LEDGER_FILE).read_bytes()
        assert entries_of(ledger) == list(range(ROUNDS))
    return "continued"


def in_journal(folder, moments):
    make = moments.choice([continuing_cluster, punctual_cluster])
    killed_at_a_write(make, is_of_journal, folder, moments)
    return "continued"


def in_epoch(folder, moments):
    killed_at_a_write(changing_cluster, begins_epoch, folder, moments)
    return "continued"


def restored(is_running=None, without_record=False, has_other_rows=False):
    """The case of a site that is restored from a copy, of any kind of federation."""

    def case(folder, moments):
        kind, running = moments.choice(KINDS), is_running
        if running is None:
            running = moments.random() < 0.5
        record = "missing" if without_record else moments.choice(["kept", "older"])
        return RestoredSite(folder, kind, moments, running, record, has_other_rows).check()

    return case


@cache
def federated_cluster(leave, deliveries):
    """Make sites whose members change twice, by rosters that are given to some at these rounds."""
    from test_roster_acceptance import FederatedCluster, load_bundle, write_roster

    class Federated(MortalEpochs, FederatedCluster):
        def deliver(self, number, signed):
            with self.watch.paused():  # what the operator does
                write_roster(self.bundle(number), signed)
                bundle = load_bundle(self.bundle(number))
            self.acceptances[number].credentials.renew(bundle, signed)

    method = build_algorithm("gt_sgd")
    return lambda folder: Federated(folder, method, leave=leave, deliveries=dict(deliveries))


# The round of the second change, eight rounds after the start or one round after the first change;
# and (site, round) at which a roster is given to a site: to two sites, or both to one.
CHANGES_IN_A_ROW = [
    (14, (((2, 3), 2), ((0, 9), 3))),
    (14, (((2, 3), 2), ((2, 4), 3))),
    (9, (((2, 3), 2), ((0, 4), 3))),
    (9, (((3, 1), 2), ((3, 2), 3))),
]


def in_two_changes(folder, moments):
    make = federated_cluster(*moments.choice(CHANGES_IN_A_ROW))
    killing = killed_at_a_write(make, is_of_site, folder, moments)
    versions = {site.roster.version for site in killing.cluster.acceptances.values()}
    assert versions == {3}
    return "continued"


def is_of_site(path):
    return number_in(path) is not None


CASES = {
    "restored from a running copy": restored(is_running=True),
    "restored from a stopped copy": restored(is_running=False),
    "restored without its record": restored(without_record=True),
    "restored with corrected rows": restored(has_other_rows=True),
    "killed at the ledger": in_ledger,
    "killed at an epoch": in_epoch,
    "killed at the journal": in_journal,
    "killed in two changes of members": in_two_changes,
}
