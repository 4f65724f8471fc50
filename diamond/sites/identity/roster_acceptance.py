"""Acceptance of a roster that changes the members in mid-run, and its way to all sites.

A roster is accepted if the authority has signed it, its version is higher than any accepted before,
it only adds to the epochs known, and the round from which it holds has not begun here. It is on the
disk (`roster.accepted` in the bundle) before the site acts on it or confirms it, so after a restart
older ones are still refused.

Every site must know of the change before its round. A site that has accepted a roster begins no
further round until all its neighbours have confirmed that they have it too. A site at distance d
of the first one, which was in round t, is then in round t + d at most, since neighbours are never
more than one round apart. So the first site accepts a roster from its operator only if the round
is more than the diameter of the network ahead. A site that sends an older roster, as after a
restart, gets the newer one in return.

With `missing = "continue"` nobody waits for absent sites. Two sites exchange their rosters with
every greeting, before the first round and after an absence, and a site that has begun the round of
a change without the others follows it late (`epoch_run`).
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature

from ...core.exclusions import check_combination
from ...core.parsing import refuse_unreadable
from ...network import Network
from ...network.membership_epochs import Epoch, check_epochs
from ..rounds.client import Transport, gather_or_cancel
from ..rounds.epoch_run import EpochRun
from ..transport.errors import Refused, Unreachable
from ..transport.messages import RosterAnswer, RosterOffer
from ..transport.timeouts import retry_until_answered
from ..transport.wire_format import Frame, FrameError
from ..transport.worker_thread import BackgroundTasks
from .credentials import Credentials
from .private_keys import BadBundle
from .roster import Bundle, Roster, SignedRoster, load_signed_roster, save_accepted

MAX_ROSTER_BYTES = 2**22


def roster_epochs(roster: Roster, build: Callable[[Mapping[str, Any]], Network]) -> list[Epoch]:
    """Return the epochs of a roster, whose networks `build` makes of their tables.

    Raises `BadBundle` if the members do not fit these networks.
    """
    with refuse_unreadable(BadBundle, "its networks cannot be built", ValueError):
        epochs = [Epoch(e.from_round, build(e.network), e.members) for e in roster.epochs]
        if epochs:
            check_epochs(epochs)
        for i, member in enumerate(roster.members if epochs else ()):
            own = [epoch.neighbours(i) for epoch in epochs if i in epoch.members]
            if {*member.neighbours} != {j for neighbours in own for j in neighbours}:
                raise BadBundle(f"the neighbours of {member.name} are not those of its networks")
    return epochs


class RosterAcceptance:
    """Rosters of a running site: accepts new ones, and passes them on before its next round."""

    def __init__(
        self,
        credentials: Credentials,
        folder: Path,
        run: EpochRun,
        transport: Transport,
        build: Callable[[Mapping[str, Any]], Network],
        check: Callable[[], None] = lambda: None,
    ):
        self.credentials, self.folder = credentials, folder
        self.run, self.transport = run, transport
        self.build, self.check = build, check  # `check` raises if the run allows no change
        self.signed, _ = load_signed_roster(folder)
        self.confirmed: dict[int, int] = {}  # version that each neighbour has confirmed
        self._notices = BackgroundTasks()
        with suppress(BadBundle):  # a bundle that is mounted read-only follows no change of members
            save_accepted(folder, self.signed)
        credentials.on_change, run.on_rewind = self.accept, self.pass_on_rewind
        credentials.listeners.append(self._record_version)

    @property
    def roster(self) -> Roster:
        """Return the newest roster."""
        return self.credentials.bundle.roster

    def accept(self, bundle: Bundle, signed: SignedRoster, from_operator: bool) -> None:
        """Check a roster with more epochs, write it to the disk, and let the run follow it."""
        old, roster, run = self.roster, bundle.roster, self.run
        known = old.all_epochs
        if roster.epochs[: len(known)] != known or len(roster.epochs) == len(known):
            raise BadBundle(
                f"roster {roster.version} changes earlier rounds of roster {old.version}, which "
                f"this site has: copy the newest roster of the authority"
            )
        try:
            self.check()
            added = roster_epochs(roster, self.build)[len(known) :]
            if rewinds := roster.epochs[len(known)].rewinds:  # to a checkpoint, without a site
                if len(added) > 1:
                    raise ValueError("it changes the members twice")
                used = {"--rewind": True, "privacy": run.node.ledger is not None}
                used |= {f"missing='{run.node.missing}'": True}
                check_combination(used, roster.federation, "sites")
                entry = run.prepare_rewind(added[0])
        except ValueError as cause:
            raise BadBundle(f"roster {roster.version} cannot be followed: {cause}") from None
        if from_operator and run.node.has_ended and not rewinds:
            raise BadBundle(
                f"roster {roster.version} comes too late: the run has ended in round {run.node.t}"
            )
        diameters = [epoch.network.diameter for epoch in run.epochs[run.index :]]
        distance = max(diameters) if from_operator else 0
        latest = run.node.latest_round + distance
        if run.node.edges is not None and not from_operator:
            latest = 0  # it can be followed late
        earliest = max(latest, known[-1].from_round) + 1
        if added[0].from_round < earliest and not rewinds:
            raise BadBundle(
                f"roster {roster.version} holds from round {added[0].from_round}; this site is in "
                f"round {run.node.t}, too late for all sites to know: repeat `diamond net change` "
                f"with a --from-round so far after {earliest} that its files are copied before, or "
                f"`diamond net stop` a site until they are"
            )
        save_accepted(self.folder, signed)
        self.signed = signed
        if rewinds:
            return run.rewind(added[0], entry)
        for epoch in added:
            run.add_epoch(epoch)

    async def pass_on_rewind(self) -> None:
        """Wait until all neighbours that stay have the roster of a rewind."""
        members = self.run.epochs[-1].members
        await self._pass_on_to_all(j for j in self.run.node.agent.neighbours if j in members)

    def _record_version(self) -> None:
        """Write the roster of renewed keys to the disk too."""
        signed, roster = load_signed_roster(self.folder)
        if roster.version == self.roster.version and signed.content != self.signed.content:
            with suppress(BadBundle):
                save_accepted(self.folder, signed)
            self.signed = signed

    def receive(self, offer: RosterOffer) -> Frame:
        """Accept the roster of a neighbour, or refuse it; confirm the version at this site."""
        roster, sender = self._take(unpack_roster(offer)), offer.sender
        version, answer = roster.version, RosterAnswer(self.roster.version)
        self.confirmed[sender] = max(version, self.confirmed.get(sender, 0))
        if version < self.roster.version and roster.epochs != self.roster.epochs:
            reason = f"roster {version} is older than {self.roster.version}, accepted here"
            service = self.run.node.service
            service.audit.record_event(service.site_name(sender), f"refused: {reason}")
            answer = RosterAnswer(self.roster.version, reason, *_pack_roster(self.signed))
        return answer.encode()

    def _take(self, signed: SignedRoster) -> Roster:
        """Accept a signed roster if it changes the members; return it, or raise `Refused`.

        Renewed keys come with the files of the operator.
        """
        own, bundle, roster = self.roster.version, self.credentials.bundle, self._verify(signed)
        if roster.version == own and signed.content != self.signed.content:
            raise Refused(f"another roster {own} was accepted here before")
        if roster.version > own and roster.epochs != self.roster.epochs:
            if len(roster.members) <= bundle.me.number:
                raise Refused("the roster does not list this site")
            new = replace(bundle, roster=roster, me=roster.members[bundle.me.number])
            try:
                self.credentials.renew(new, signed, from_operator=False)
            except BadBundle as cause:
                raise Refused(str(cause)) from None
        return roster

    def _verify(self, signed: SignedRoster) -> Roster:
        """Return a roster that the authority has signed; raise `Refused` if it has not."""
        try:
            return signed.verify(self.credentials.bundle.ca)
        except InvalidSignature:
            raise Refused("the roster is not what the federation's authority signed") from None
        except BadBundle as cause:
            raise Refused(str(cause)) from None

    async def pass_on(self) -> None:
        """Wait until all neighbours of this epoch have the roster, if a change is to come.

        Late ones are not waited for, and absent ones get it when they return.
        """
        if self.run.next_epoch is None:
            return
        node, version = self.run.node, self.roster.version
        away = {
            j for j in node.agent.neighbours if node.edges is not None and node.edges.is_away(j)
        }
        for j in away:
            if self.confirmed.get(j, 0) < version and not self._notices:
                self._notices.start(self._notify(j))
        await self._pass_on_to_all(j for j in node.agent.neighbours if j not in away)

    async def _notify(self, j: int) -> None:
        """Offer the roster to j once, whether it answers or not."""
        with suppress(Unreachable, FrameError):
            await self.offer(j)

    async def _pass_on_to_all(self, neighbours: Iterable[int]) -> None:
        version = self.roster.version
        others = [j for j in neighbours if self.confirmed.get(j, 0) < version]
        await gather_or_cancel(self._pass_on_to(j, version) for j in others)

    async def _pass_on_to(self, j: int, version: int) -> None:
        node = self.run.node

        async def attempt() -> bool:
            if self.confirmed.get(j, 0) < version == self.roster.version:
                await self.offer(j)
            return True

        description = f"confirmation of roster {version} by {node.service.site_name(j)}"
        if node.edges is not None:
            return await node.edges.await_answer(j, attempt, description)
        await retry_until_answered(attempt, description, node.timeouts, node.wait_records[j])

    async def offer(self, j: int) -> None:
        """Offer the roster to j once; take that of j if it is newer."""
        me = self.credentials.bundle.me.number
        response = await self.transport.send_request(j, offer_roster(me, self.signed).encode())
        answer = RosterAnswer.read(response)
        if answer.refused is not None:  # it has a newer one, which it sends along
            with refuse_unreadable(FrameError, "an answer without a roster", Refused):
                signed = unpack_roster(answer)
                self._verify(signed)
            self._take(signed)
        self.confirmed[j] = answer.version


def offer_roster(sender: int, signed: SignedRoster) -> RosterOffer:
    """Return the message that offers a roster to a neighbour."""
    return RosterOffer(sender, *_pack_roster(signed))


def _pack_roster(signed: SignedRoster) -> tuple[bytes, bytes]:
    """Return the fields of a message with a roster."""
    return zlib.compress(signed.content), signed.signature


def unpack_roster(message: RosterOffer | RosterAnswer) -> SignedRoster:
    """Return the roster in a message; raise `Refused` if it cannot be unpacked."""
    if message.roster is None or message.signature is None:
        raise Refused("a roster without content or signature")
    with refuse_unreadable(Refused, "the roster cannot be unpacked"):
        content = zlib.decompressobj().decompress(message.roster, MAX_ROSTER_BYTES)
        return SignedRoster(content, message.signature)
