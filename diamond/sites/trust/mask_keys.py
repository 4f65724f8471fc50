"""Keys of masked sums: the neighbours of a receiver agree on pairwise keys, through the receiver.

Every site has an X25519 key for each run, in its folder, and signs its public half together with
the run by the key of its certificate. A receiver passes the signed public keys of its neighbours on
to each of them. It can withhold them, which stops the run, but not replace them: only keys are used
that exactly the neighbours which the network lists have signed. From a shared secret, HKDF derives
one key for each run and receiver. Keys are agreed on once for a run folder, before the
first message: a restarted site has the same, since all answers are on the disk before anything is
masked.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ...core.parsing import refuse_unreadable
from ...records import checkpoint_file
from ..identity.credentials import Credentials
from ..memory.site_checkpoint import OtherRun
from ..rounds.client import NeighbourClient, gather_or_cancel
from ..transport import messages
from ..transport.errors import Refused
from ..transport.messages import AllKeysAnswer, KeyRequest, OwnKeyAnswer, OwnKeyRequest
from ..transport.timeouts import retry_until_answered
from ..transport.wire_format import Frame, FrameError
from .signed_records import sign_record, verify_record

KEY_FILE = "masks.json"
CONTEXT = b"diamond: key of masked sums\0"
KEY_BYTES, CIPHER_BYTES = 32, 16
MAX_NEIGHBOURS = 60  # of a site: their signed keys fit in the header of a frame


class MaskIdentity:
    """How a site signs its public key, and verifies those of others.

    This one signs nothing, for the agents of one process, which trust each other.
    """

    def sign(self, content: bytes) -> bytes:
        """Return a record with the content, signed by this site."""
        return content

    def verify(self, record: bytes, agent: int) -> bytes:
        """Return the content of a record that this agent must have signed."""
        return record


class SiteIdentity(MaskIdentity):
    """Identity of a site by the certificate of its bundle."""

    def __init__(self, credentials: Credentials):
        self.credentials = credentials

    def sign(self, content: bytes) -> bytes:
        """Sign by the key of the certificate, which the record contains."""
        return sign_record(self.credentials.bundle, CONTEXT, content)

    def verify(self, record: bytes, agent: int) -> bytes:
        """Return the content if this agent signed it; raises `Refused` or `FrameError`."""
        bundle = self.credentials.bundle
        content, holder = verify_record(bundle, CONTEXT, record, "key of masked sums")
        if holder is None or holder.number != agent:
            name = bundle.roster.members[agent].name
            raise Refused(f"a key of masked sums in the name of {name}, which did not sign it")
        return content


class MaskKeys:
    """Keys of agent `agent` in one run; `groups` has the neighbours of each of its neighbours.

    `records` are the signed public keys of its own neighbours, which it passes on. Without a
    folder, keys are in memory only.
    """

    def __init__(
        self,
        agent: int,
        run: str,
        groups: Mapping[int, Sequence[int]],
        identity: MaskIdentity,
        *,
        folder: Path | None = None,
    ):
        self.agent, self.run, self.groups, self.identity = agent, run, groups, identity
        self.path = None if folder is None else folder / KEY_FILE
        self.record = b""  # own public key, signed; empty until `open`
        self.records: dict[int, bytes] = {}
        self.public_keys: dict[int, dict[int, bytes]] = {}  # by receiver and neighbour of it
        self._secret = X25519PrivateKey.generate()
        self._pair_keys: dict[tuple[int, int], bytes] = {}

    def open(self, is_resumed: bool) -> None:
        """Load the keys of this run, or write new ones."""
        if self.path is None or not self._load(self.path):
            if is_resumed and self.path is not None:
                raise OtherRun(
                    f"{self.path} is missing or of another run, without which the same messages "
                    f"cannot be made again: restore it, or start all sites with --restart"
                )
            self.save()
        self.record = self.identity.sign(self._content(self.agent, self.public_key))

    @property
    def is_complete(self) -> bool:
        """Whether the keys of all neighbours of all receivers are known."""
        return set(self.groups) == set(self.public_keys)

    def add_record(self, neighbour: int, record: bytes) -> None:
        """Take the signed key of a neighbour, to pass it on."""
        self._verify(neighbour, record)
        self.records[neighbour] = record

    def passed_records(self, asker: int, public_key: bytes) -> list[Any] | None:
        """Return the signed keys of all neighbours for one of them; None if some are unknown.

        Raises `Refused` if the asker has another key than the one that was passed on.
        """
        if set(self.records) != set(self.groups):
            return None
        if self._verify(asker, self.records[asker]) != public_key:
            raise Refused(
                "its key of masked sums is not the one that its neighbours have, since its folder "
                "was lost or replaced: start all sites with --restart"
            )
        return [[j, record] for j, record in self.records.items() if j != asker]

    def answer_request(self, request: KeyRequest) -> Frame | None:
        """Return the answer to a neighbour's request for keys; None if it does not exist yet."""
        if request.run != self.run:
            raise Refused("a request for keys of masked sums of another run")
        if isinstance(request, OwnKeyRequest):
            return OwnKeyAnswer(self.record).encode() if self.record else None
        records = self.passed_records(request.sender, request.key)
        return None if records is None else AllKeysAnswer(records).encode()

    @property
    def public_key(self) -> bytes:
        """Public key of this site in this run."""
        return self._secret.public_key().public_bytes_raw()

    def add_group(self, receiver: int, records: Any) -> None:
        """Take the signed keys of the other neighbours of a receiver, which must be complete."""
        expected = set(self.groups[receiver]) - {self.agent}
        with refuse_unreadable(FrameError, "an answer without keys of masked sums"):
            signed = {j: record for j, record in records}
        if set(signed) != expected or not all(isinstance(r, bytes) for r in signed.values()):
            raise FrameError("keys of other sites than the neighbours of the receiver")
        self.public_keys[receiver] = {j: self._verify(j, record) for j, record in signed.items()}

    def pair_key(self, receiver: int, other: int) -> bytes:
        """Return the key that this site shares with another neighbour of a receiver."""
        if (receiver, other) not in self._pair_keys:
            shared = self._shared_secret(self.public_keys[receiver][other])
            low, high = sorted((self.agent, other))
            info = CONTEXT + f"{self.run} {receiver} {low} {high}".encode()
            derive = HKDF(hashes.SHA256(), CIPHER_BYTES, None, info).derive
            self._pair_keys[receiver, other] = derive(shared)
        return self._pair_keys[receiver, other]

    def _shared_secret(self, public_key: bytes) -> bytes:
        return self._secret.exchange(X25519PublicKey.from_public_bytes(public_key))

    def _content(self, agent: int, public_key: bytes) -> bytes:
        return public_key + f"{self.run} {agent}".encode()

    def _verify(self, agent: int, record: bytes) -> bytes:
        """Return the public key in a record that `agent` has signed for this run."""
        content = self.identity.verify(record, agent)
        public_key = content[:KEY_BYTES]
        if content != self._content(agent, public_key):
            raise Refused("a key of masked sums of another run or site")
        with refuse_unreadable(Refused, "a key of masked sums that leads to no secret"):
            self._shared_secret(public_key)
        return public_key

    def save(self) -> None:
        """Write all keys to the folder, before anything is masked by them."""
        if self.path is None:
            return
        by_text = lambda values: {str(j): value.hex() for j, value in values.items()}
        document = {
            "run": self.run,
            "secret": self._secret.private_bytes_raw().hex(),
            "records": by_text(self.records),
            "keys": {str(i): by_text(keys) for i, keys in self.public_keys.items()},
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint_file.replace_file(self.path, json.dumps(document).encode())
        os.chmod(self.path, 0o600)

    def _load(self, path: Path) -> bool:
        """Load the keys of this run; False if there are none."""
        if not path.exists():
            return False
        by_number = lambda values: {int(j): bytes.fromhex(v) for j, v in values.items()}
        damage = (
            f"{path} is damaged, without which the same messages cannot be made again: restore it "
            f"from a copy, or start all sites with --restart"
        )
        with refuse_unreadable(OtherRun, damage):
            document = json.loads(path.read_bytes())
            if document["run"] != self.run:
                return False
            self._secret = X25519PrivateKey.from_private_bytes(bytes.fromhex(document["secret"]))
            self.records = by_number(document["records"])
            self.public_keys = {int(i): by_number(keys) for i, keys in document["keys"].items()}
        return True


async def agree_on_keys(keys: MaskKeys, client: NeighbourClient) -> None:
    """Fetch the keys of all neighbours of all neighbours."""

    async def fetch(j: int, kind: type[KeyRequest], read: Callable[[int, Frame], None]) -> None:
        """Read the answer of neighbour j, once it has one that can be read."""
        request = kind(keys.agent, keys.run, keys.public_key).encode()

        async def attempt() -> bool | None:
            answer = await client.transport.send_request(j, request)
            if not answer:
                return None
            with refuse_unreadable(FrameError, "an answer without keys of masked sums", Refused):
                read(j, answer)
            return True

        description = f"keys of masked sums of {client.service.site_name(j)}"
        with client.neighbour_status[j].mark_awaited():
            await retry_until_answered(
                attempt, description, client.timeouts, client.wait_records[j]
            )

    add_record = lambda j, answer: keys.add_record(j, OwnKeyAnswer.read(answer).record)
    add_group = lambda j, answer: keys.add_group(j, AllKeysAnswer.read(answer).records)
    await gather_or_cancel(fetch(j, OwnKeyRequest, add_record) for j in keys.groups)
    client.service.notify_waiting()
    await gather_or_cancel(fetch(j, messages.AllKeysRequest, add_group) for j in keys.groups)
