"""Faults at random moments in sites over mutual TLS: a copied bundle that runs twice, another CPU.

    python tls_recovery.py cpu FLAGS     # answers a seed a line: the site continues with FLAGS
    python tls_recovery.py site          # one site: a line names its bundle and its folders

Both cases draw their moment from a `random.Random` and return an outcome, as `recovery_cases` does.
"""

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from crash_cluster import EVERY, ROUNDS, team
from recovery_cases import COMMANDS, ContradictionWatch
from tls_sites import SHORT_TIMEOUTS, federation, largest_layout, ports
from write_watch import WriteWatch, cancel, watching

from diamond.sites.identity.roster import load_bundle
from diamond.sites.memory.sent_record import RECORD_FILE
from diamond.sites.memory.site_checkpoint import OtherRun
from diamond.sites.rounds.node import Node
from diamond.sites.transport.errors import Refused
from diamond.sites.transport.in_process_transport import run_inline
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.wire_format import max_frame_bytes
from diamond.sites.trust.signed_messages import sign_messages
from diamond.sites.trust.signed_records import StatementSigner

VICTIM, SITES, SECONDS = 1, 3, 60.0
PACE = 0.1  # seconds of a round: a copy starts before its run has ended
OTHER_CPU = "--xla_cpu_max_isa=SSE4_2"


class WatchedClient(RpcClient):
    """Client that notes all messages that it receives."""

    wire_watch = None

    async def send_request(self, neighbour, request):
        response = await super().send_request(neighbour, request)
        self._note(neighbour, response)
        return response

    def subscribe(self, neighbour, request, subscription):
        receive = subscription.receive

        def receive_noted(content):
            self._note(neighbour, content)
            return receive(content)

        subscription.receive = receive_noted
        super().subscribe(neighbour, request, subscription)

    def _note(self, neighbour, frame):
        if self.wire_watch is not None:
            me = self.credentials.bundle.me.number
            self.wire_watch.record(neighbour, me, frame)


async def live(place, folder, wire_watch=None, listen=None, is_signed=False):
    """Run the site of a bundle to its end; return the digest of its x."""
    bundle = load_bundle(place)
    agent = team()[bundle.me.number]
    size = max_frame_bytes(largest_layout())
    client = WatchedClient(bundle, size, SHORT_TIMEOUTS, instance=os.urandom(8))
    client.wire_watch = wire_watch
    options = {"sent_path": place / RECORD_FILE}
    if is_signed:
        signer = StatementSigner(lambda: bundle)
        options["sign"] = lambda node: sign_messages(signer, node)
    async with client:
        fixed = agent, ROUNDS, client, folder, EVERY, SHORT_TIMEOUTS, run_inline
        node = Node(*fixed, **options)
        node.before_round = lambda: asyncio.sleep(PACE)
        async with Server(bundle, node.answer_request, listen):
            return np.asarray((await node.run()).state.x).tobytes().hex()


def site_of(path):
    """The number of the site whose run folder has this file."""
    return next(int(part[4:]) for part in path.parts if part.startswith("site") and part[4:])


class TlsSites:
    """Three sites on a path; something happens to the middle one at an operation on its files."""

    def __init__(self, folder, is_signed=False):
        self.folder, self.is_signed = folder, is_signed
        self.bundles = [folder / "trial" / b.me.name for b in federation_of(folder)]
        self.wire_watch, self.count = ContradictionWatch(), 0
        self.actions = {}  # by operation of the victim
        self.tasks = [None] * SITES
        self.watch = WriteWatch(folder / "runs", self.on_operation, self.die, site_of)

    def on_operation(self, operation):
        if site_of(operation.path) != VICTIM:
            return None
        self.count += 1
        action = self.actions.get(self.count)
        return action() if action is not None else None

    def die(self, path):
        cancel(self.tasks[VICTIM])

    def run_folder(self, number):
        return self.folder / "runs" / f"site{number}"

    def start(self, number):
        work = live(
            self.bundles[number], self.run_folder(number), self.wire_watch, None, self.is_signed
        )
        self.tasks[number] = asyncio.ensure_future(work)

    async def end(self):
        """The ends of all sites; a neighbour that has ended is started again until all have."""
        ends = {}
        async with asyncio.timeout(2 * SECONDS):
            while VICTIM not in ends:
                await asyncio.wait(self.tasks, return_when="FIRST_COMPLETED")
                for number in (j for j, task in enumerate(self.tasks) if task.done()):
                    ends.setdefault(
                        number, error_of(self.tasks[number]) or self.tasks[number].result()
                    )
                    self.start(number) if number != VICTIM else None
                await asyncio.sleep(PACE)
            if not isinstance(ends[VICTIM], Exception):
                for number in (j for j in range(SITES) if j not in ends):
                    ends[number] = await self.tasks[number]
        await self.stop()
        return [ends.get(number) for number in range(SITES)]

    async def stop(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def federation_of(folder):
    return federation(folder / "trial")


@cache
def run_undisturbed(is_signed):
    """The ends, and the number of operations of the site in the middle."""

    async def run():
        sites = TlsSites(Path(folder), is_signed)
        with watching(sites.watch):
            for number in range(SITES):
                sites.start(number)
            return await sites.end(), sites.count

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run())


def run_twice(folder, moments):
    """A copy of the bundle and of the run folder starts elsewhere, while the site runs or is dead.

    Neighbours refuse the second process. The site ends in the bits of the undisturbed run; or else
    the copy has continued while the site was dead, and the site stops.
    """
    return asyncio.run(_run_twice(folder, moments, *run_undisturbed(False)))


async def _run_twice(folder, moments, expected, total):
    sites, copy, now = TlsSites(folder), folder / "elsewhere", asyncio.Event()
    first = moments.randrange(1, total)
    begin, dies = moments.randrange(first, total), moments.random() < 0.4

    def make_copy():
        shutil.copytree(sites.bundles[VICTIM], copy / "bundle")
        if sites.run_folder(VICTIM).exists():
            shutil.copytree(sites.run_folder(VICTIM), copy / "run")

    def start_copy():
        if first == begin:
            make_copy()
        now.set()
        return moments.choice([0.0, 0.5, 1.0]) if dies else None

    sites.actions = {first: make_copy, begin: start_copy}
    with watching(sites.watch):
        for number in range(SITES):
            sites.start(number)
        await asyncio.wait_for(now.wait(), SECONDS)
        if dies:
            await asyncio.wait([sites.tasks[VICTIM]])
            sites.watch.revive(VICTIM)
        port = f"127.0.0.1:{ports(1)[0]}"
        twin = asyncio.ensure_future(live(copy / "bundle", copy / "run", sites.wire_watch, port))
        if dies:
            await asyncio.sleep(moments.random())
            sites.start(VICTIM)
        await asyncio.wait([twin, *sites.tasks], timeout=SECONDS, return_when="FIRST_COMPLETED")
        errors = []
        ends = await sites.end()
        if isinstance(ends[VICTIM], Refused):  # only if the copy was there before it
            errors.append(ends[VICTIM])
            assert dies
            twin.cancel()
            await asyncio.wait([twin])
            for number in range(SITES):
                sites.start(number)
            ends = await sites.end()
        twin.cancel()
        await asyncio.wait([twin])
    errors += [error_of(twin), *(end for end in ends if isinstance(end, Exception))]
    for error in filter(None, errors):
        is_refused = isinstance(error, Refused) and "runs already, with the same" in str(error)
        assert is_refused or names_command(error), error
    assert not sites.wire_watch.contradictions
    if isinstance(ends[VICTIM], OtherRun):  # the copy has continued while it was dead
        assert dies and names_command(ends[VICTIM])
        return "the first stopped"
    assert ends == expected, (ends, errors)
    return "the second was refused" if any(errors) else "ended before"


def error_of(task):
    """The error of a site that has ended, or None."""
    return task.exception() if task.done() and not task.cancelled() else None


def names_command(error):
    return isinstance(error, OtherRun) and any(command in str(error) for command in COMMANDS)


def run_elsewhere(folder, moments, run_site):
    """The site is lost, and `run_site` continues a copy of its folder on another CPU."""
    is_signed = moments.random() < 0.5
    _, total = run_undisturbed(is_signed)
    return asyncio.run(_run_elsewhere(folder, moments, run_site, is_signed, total))


async def _run_elsewhere(folder, moments, run_site, is_signed, total):
    sites, copy = TlsSites(folder, is_signed), folder / "copy"
    first = moments.randrange(1, total)
    last = moments.randrange(first, total)

    def make_copy():
        if (place := sites.run_folder(VICTIM)).exists():
            shutil.copytree(place, copy)

    def lose():
        if first == last:
            make_copy()
        return moments.choice([0.0, 0.5, 1.0])

    sites.actions = {first: make_copy, last: lose}
    with watching(sites.watch):
        for number in range(SITES):
            sites.start(number)
        await asyncio.wait([sites.tasks[VICTIM]], timeout=SECONDS)
        assert sites.watch.dead
    shutil.rmtree(sites.run_folder(VICTIM), ignore_errors=True)
    if copy.exists():
        shutil.copytree(copy, sites.run_folder(VICTIM))
    bundle = sites.bundles[VICTIM]
    if moments.random() < 0.5:
        (bundle / RECORD_FILE).unlink(missing_ok=True)
    for number in (j for j in range(SITES) if j != VICTIM and sites.tasks[j].done()):
        sites.start(number)
    answer = await run_site(bundle, sites.run_folder(VICTIM), is_signed)
    others = [task for j, task in enumerate(sites.tasks) if j != VICTIM]
    if "error" in answer:
        await sites.stop()
        assert any(command in answer["error"] for command in COMMANDS), answer
        assert all(task.cancelled() or not task.exception() for task in others)
    else:
        await asyncio.wait_for(asyncio.gather(*others), SECONDS)
    assert not sites.wire_watch.contradictions
    return "stopped" if "error" in answer else "continued"


def answer_lines(answer):
    """Answer each line of the standard input by a line."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


class LineProcess:
    """This file as a process that answers lines, with flags of the compiler."""

    def __init__(self, flags, *words):
        environment = os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_X64": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.kill()
        self.process.communicate()


def run_site(words):
    """Run one site; return its end or its error."""
    place, folder, is_signed = words
    try:
        return {"x": asyncio.run(live(Path(place), Path(folder), is_signed=is_signed))}
    except OtherRun as error:
        return {"error": str(error)}


def main(kind, flags=OTHER_CPU):
    if kind == "site":
        return answer_lines(run_site)
    site = LineProcess(flags, "site")

    async def run_there(bundle, folder, is_signed):
        return await asyncio.to_thread(site.ask, [str(bundle), str(folder), is_signed])

    def play(seed):
        with tempfile.TemporaryDirectory() as folder:
            return run_elsewhere(Path(folder), random.Random(seed), run_there)

    try:
        answer_lines(play)
    finally:
        site.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
