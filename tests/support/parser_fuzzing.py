"""Every parser of foreign bytes with mutated inputs: each ends in a value or in a refusal.

A mutation changes the document inside a valid message (another type, deep nesting, a huge number)
and signs it as a member could, or changes bytes. `PARSERS` has one function for each parser.
"""

import asyncio
import copy
import datetime
import json
from base64 import b64decode, b64encode
from types import SimpleNamespace

import msgpack
import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from frame_fuzzing import ARRAYS, ENVELOPE, FRAME, LAYOUT, mutate, reseal
from tls_sites import NETWORK

import diamond
from diamond.records import checkpoint_file
from diamond.records.checkpoint_file import DamagedCheckpoint
from diamond.sites.identity import roster
from diamond.sites.identity.certificate_authority import create_federation
from diamond.sites.identity.certificate_holder import verify_certificate
from diamond.sites.identity.credentials import Credentials
from diamond.sites.identity.handshake import describe_differences
from diamond.sites.identity.private_keys import (
    BadBundle,
    create_request,
    load_signing_key,
    read_request,
)
from diamond.sites.identity.roster import (
    SignedRoster,
    decode_roster,
    load_signed_roster,
    save_accepted,
)
from diamond.sites.identity.roster_acceptance import offer_roster, unpack_roster
from diamond.sites.identity.roster_changes import change_members
from diamond.sites.identity.site_authorities import check_crls, is_revoked, stale_crls
from diamond.sites.identity.stewards import (
    ALGORITHM,
    choose_stewards,
    encode_key,
    verify_stewards,
)
from diamond.sites.memory import message_store
from diamond.sites.memory.edge_journal import DamagedJournal, EdgeJournal
from diamond.sites.memory.outbox import Receipts, read_receipts
from diamond.sites.memory.sent_record import SentRecord
from diamond.sites.memory.site_checkpoint import FINISHED_FILE, OtherRun, load_finished
from diamond.sites.rounds.node_status import validate_status
from diamond.sites.rounds.overview import new_query, sign_status, verify_status
from diamond.sites.rounds.service import Service
from diamond.sites.transport import wire_format
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.errors import Refused
from diamond.sites.transport.in_process_transport import run_inline
from diamond.sites.transport.messages import UP, RosterOffer, Vote
from diamond.sites.transport.reachability import all_neighbours
from diamond.sites.transport.relay_handshake import _signed_bytes, encode_hello, verify_hello
from diamond.sites.transport.timeouts import Timeouts
from diamond.sites.transport.wire_format import FrameError
from diamond.sites.trust.equivocation_proof import BadProof, check_proof, read_proof, write_proof
from diamond.sites.trust.mask_keys import CONTEXT, MaskKeys, SiteIdentity
from diamond.sites.trust.signed_messages import SignedMessages
from diamond.sites.trust.signed_records import (
    SIGNATURE_ALGORITHM,
    StatementSigner,
    digest_of,
    sign_record,
)

RUN = "ab" * 32
DEEP, HUGE = "@deep@", "@huge@"  # written as what no packer writes
VALUES = (
    *(None, True, 0, -1, 2**31, 2**63, -(2**63), 0.5, float("inf"), float("nan"), DEEP, HUGE),
    *("", "x", "[/b]", "\x1b[31m", "run", "9" * 5000, "@" * 3000, b"", b"\0" * 32, b"\xff" * 80),
    *([], [[]], [0] * 7, [b"", b"", b""], {}, {"agent": 0}),
)
STATUS = {
    **{"agent": 1, "round": 3, "rounds": 9, "state": "running", "away": [2], "liars": [0]},
    **{"waiting": [{"agent": 0, "seconds": 2.0, "why": "silence"}], "connected": [0]},
    **{"epsilon": 0.5, "budget": 2.0, "loss": 0.25},
}


def change_document(document, random):
    """Replace, remove or repeat one to three parts of a document."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(_places(document))
        if not places:
            return random.choice(VALUES)
        node, key = random.choice(places)
        kind = random.randrange(8)
        if kind == 0:
            del node[key]
        elif kind == 1:
            other, place = random.choice(places)
            node[key] = copy.deepcopy(other[place])
        elif kind == 2 and isinstance(node, list):
            node.insert(key, copy.deepcopy(node[key]))
        elif kind == 3 and isinstance(node[key], bytes):
            node[key] = change_bytes(node[key], random)
        else:
            node[key] = copy.deepcopy(random.choice(VALUES))
    return random.choice(VALUES) if random.random() < 0.02 else document


def _places(document):
    """Return all parts of a document as pairs of a list or map and a key of it."""
    if not isinstance(document, dict | list):
        return
    keys = range(len(document)) if isinstance(document, list) else [*document]
    for key in keys:
        yield document, key
        yield from _places(document[key])


def change_bytes(raw, random):
    """Change a few bytes, or give other ones altogether."""
    is_other = random.random() < 0.05
    return random.randbytes(random.randrange(200)) if is_other else mutate(raw, random)


def pack_document(document, random):
    """Encode a document as msgpack, with parts that are nested deeply."""
    deep = b"\x91" * random.choice((40, 500, 1100)) + b"\xc0"
    packed = msgpack.packb(document, default=str)
    return packed.replace(msgpack.packb(DEEP), deep)


def dump_document(document, random):
    """Encode a document as JSON, with deep parts and numbers of hundreds of digits."""
    text = json.dumps(document, default=lambda value: value.hex())
    deep = "[" * random.choice((40, 1500, 100_000))
    return text.replace(f'"{DEEP}"', deep).replace(f'"{HUGE}"', "1" + "0" * 400).encode()


def pack_frame(header, random, *content):
    """Encode a frame with any header, under the right checksum."""
    packed = pack_document(header, random)
    empty = bytes(wire_format.pack({}, *content))
    start = wire_format.PREFIX.size
    rest = empty[wire_format._arrays_offset(1) :] if content else empty[start + 1 :]
    head = wire_format.PREFIX.pack(wire_format.MAGIC, wire_format.VERSION, len(packed)) + packed
    if content:
        head = head.ljust(wire_format._arrays_offset(len(packed)), b"\0")
    return reseal(head + rest)


def change_certificate(der, random):
    """A certificate with other bytes or of another version, as nobody has signed."""
    version = der.index(b"\xa0\x03\x02\x01") + 4
    if random.random() < 0.3:
        return der[:version] + bytes([random.randrange(256)]) + der[version + 1 :]
    return change_bytes(der, random)


class Federation:
    """Keys and valid examples of a federation of three sites, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        sites = {f"site{i}": f"127.0.0.1:{7000 + i}" for i in range(3)}
        table = {"graph": "path", "agents": 3}
        terms = {"rounds": 9, "network": table}
        places = create_federation(folder / "trial", "trial", sites, NETWORK, terms)
        self.bundles = [roster.load_bundle(place) for place in places.values()]
        self.bundle, self.other = self.bundles[:2]
        self.key = load_pem_private_key(self.other.key, None)
        certificate = x509.load_pem_x509_certificate(self.other.certificate)
        self.der, self.nonce, self.query = certificate.public_bytes(Encoding.DER), b"1" * 32, b""
        self.authority = load_pem_private_key((folder / "trial" / "ca.key").read_bytes(), None)
        four = diamond.network.path(4)
        change_members(
            folder / "trial",
            sites | {"site3": "127.0.0.1:7003"},
            four,
            table | {"agents": 4},
            5,
        )
        self.signed, _ = load_signed_roster(folder / "trial")
        self.query = new_query()
        self.lines = []
        self.neighbours = dict(enumerate(all_neighbours(diamond.network.complete(3))))
        self.endpoints = [self.endpoint(i) for i in range(3)]
        self.groups = {1: [0, 2]}
        self.masks = self.mask_keys(0), self.mask_keys(2)
        self.loop = asyncio.new_event_loop()
        agent = SimpleNamespace(number=0, neighbours=[1])
        options = {"digests": {"run": RUN}, "last_tick": 9, "timeouts": Timeouts(round=0.002)}
        options |= {"run_blocking": run_inline, "folder": None, "names": {}}
        self.service = Service(SimpleNamespace(agent=agent, **options))
        self.attached = self.valid_attachment()

    def endpoint(self, number):
        signer, audit = StatementSigner(lambda: self.bundles[number]), Audit(self.lines.append)
        logs = SentRecord(None, RUN, "renew its keys"), Receipts(range(3)), audit, {}
        fixed = number, RUN, signer, self.neighbours, None, *logs
        return SignedMessages(*fixed, round_of=lambda exchange: exchange)

    def mask_keys(self, number):
        keys = MaskKeys(number, RUN, self.groups, SiteIdentity(Credentials(self.bundles[number])))
        keys.open(is_resumed=False)
        return keys

    def valid_attachment(self):
        """What site 1 attaches: a statement, one of site 2, its certificate, and a proof."""
        sign = lambda number, exchange, digest: self.endpoints[number].signer.sign(
            RUN, exchange, 0, digest
        )
        fields = lambda statement: list(statement[1:])
        own = sign(1, ENVELOPE.round, digest_of(*map(bytes, ARRAYS)))
        other = self.endpoints[2].signer.certificate
        pair = [fields(sign(2, 4, bytes([k]) * 32)) for k in (1, 2)]
        passed = [[*fields(sign(2, 3, b"\0" * 32)), 1]]
        return [own.version, own.signature, self.der, passed, [other], [[other, *pair]]]


def refuses(*errors):
    """Decorate a parser: these errors are refusals."""

    def decorate(parse):
        def attempt(federation, random):
            try:
                parse(federation, random)
            except errors as refusal:
                assert isinstance(refusal, InvalidSignature) or 0 < len(str(refusal)) < 2000
                return False
            return True

        PARSERS[parse.__name__] = attempt
        return attempt

    return decorate


PARSERS = {}


@refuses(FrameError)
def frame(federation, random):
    header, content = wire_format.unpack(FRAME, 10**4)
    if random.random() < 0.5:
        raw = change_bytes(bytes(FRAME), random)
        raw = reseal(raw) if len(raw) >= 4 else raw
    else:
        raw = pack_frame(change_document(header, random), random, content)
    arrays = wire_format.decode(raw, ENVELOPE, LAYOUT)
    assert all(np.isfinite(a).all() for a in arrays)


@refuses(FrameError, Refused)
def request(federation, random):
    """Everything that a neighbour can ask: greetings, messages, votes, keys, statuses."""
    message = {"run": RUN, "sender": 1, "round": 0, "durable": 0, "talk": 0}
    headers = [
        {"kind": "hello", "sender": 1, "parts": {"run": RUN}, "within": 1.0, "from": [0, 0]},
        {"kind": "overview", "sender": 1, "query": b"1" * 16, "seconds": 1.0, "hops": 1},
        {"kind": "mask key", "sender": 1, "run": RUN, "key": b"1" * 32},
        *({"kind": kind, "sender": 1} for kind in ("ping", "status", "roster", "stop")),
        *({"kind": kind, **message} for kind in ("ask", "follow", "word", "kept", "position")),
    ]
    raw = pack_frame(change_document(random.choice(headers), random), random)
    federation.loop.run_until_complete(federation.service.answer_request(1, raw))


@refuses(FrameError)
def digests(federation, random):
    parts = {"run": RUN, "diamond": "1.0", "rounds": "9"}
    packed = pack_document({"parts": change_document(parts, random)}, random)
    describe_differences(parts, _unpack(packed).get("parts"))


@refuses(FrameError)
def receipts(federation, random):
    entries = [[3, 0, b"1" * 32, 1, b"2" * 64], [4, 1, b"3" * 32, 0, b""]]
    packed = pack_document({"receipts": change_document(entries, random)}, random)
    read_receipts(_unpack(packed).get("receipts"), (2, 0))


@refuses(FrameError)
def vote(federation, random):
    header = {"kind": "word", "word": UP, "until": 3}
    Vote.read(pack_frame(change_document(header, random), random))


@refuses(FrameError)
def attachment(federation, random):
    document = federation.attached
    if random.random() < 0.2:
        document = copy.deepcopy(document)
        changed = change_certificate(federation.der, random)
        place = random.randrange(3)
        if place == 0:
            document[2] = changed
        elif place == 1:
            document[4] = [changed]
        else:
            document[5][0][0] = changed
    packed = pack_document(change_document(document, random), random)
    packed = change_bytes(packed, random) if random.random() < 0.2 else packed
    envelope = ENVELOPE._replace(run=RUN, sender=1)
    raw = wire_format.encode(envelope, ARRAYS, lambda parts: packed)
    federation.endpoint(0).decode(raw, envelope, LAYOUT)


@refuses(Refused)
def certificate(federation, random):
    changed = change_certificate(federation.der, random)
    verify_certificate(changed, federation.bundle.ca, federation.bundle.roster)
    federation.endpoints[0].signer.identify(changed)


@refuses(FrameError, Refused)
def status(federation, random):
    """A status that a member signs, or the answer of a neighbour."""
    if random.random() < 0.3:
        answer = _unpack(pack_document(change_document(STATUS, random), random))
        return _check_status(validate_status(answer, 3))
    content = dump_document(change_document(STATUS, random), random)
    context = b"diamond: status of a site\0" + federation.query
    record = sign_record(federation.other, context, content)
    _check_status(verify_status(federation.bundle, federation.query, record))


def _check_status(answer):
    numbers = [answer[name] for name in ("round", "rounds", "agent")]
    numbers += [wait["seconds"] for wait in answer["waiting"]]
    numbers += [answer[name] for name in ("loss", "epsilon", "budget") if name in answer]
    assert all(type(n) in (int, float) and abs(n) <= 1e100 for n in numbers)
    text = answer["state"] + "".join(wait["why"] for wait in answer["waiting"])
    assert text.isprintable() and len(text) < 2000


@refuses(FrameError, Refused)
def record(federation, random):
    """Records with other fields or certificates, as statuses and keys of masks are."""
    content = json.dumps(STATUS).encode()
    fields = msgpack.unpackb(sign_status(federation.other, federation.query, STATUS))
    fields = [content, change_certificate(federation.der, random), fields[2]]
    changed = pack_document(change_document(fields, random), random)
    verify_status(federation.bundle, federation.query, changed)


@refuses(FrameError, Refused)
def mask_key(federation, random):
    own, other = federation.masks
    content = change_bytes(other._content(2, other.public_key), random)
    if random.random() < 0.1:
        content = other._content(2, bytes(32))  # a point that every secret leads to zero with
    signed = sign_record(federation.bundles[2], CONTEXT, content)
    choices = [other.record, signed, change_bytes(other.record, random)]
    records = change_document([[2, random.choice(choices)]], random)
    own.add_group(1, _unpack(pack_document({"records": records}, random))["records"])


@refuses(Refused)
def hello(federation, random):
    bundle, nonce = federation.other, federation.nonce
    fields = msgpack.unpackb(encode_hello(bundle, "site2", nonce))
    changed = change_document(fields, random)
    if random.random() < 0.5 and isinstance(changed, list) and len(changed) == 5:
        signed = _signed_bytes(nonce, [str(v) for v in changed[:3]])
        changed[4] = federation.key.sign(signed, SIGNATURE_ALGORITHM)
        changed[3] = change_certificate(federation.der, random)
    raw = pack_document(changed, random)
    raw = change_bytes(raw, random) if random.random() < 0.3 else raw
    verify_hello(raw, nonce, bundle.ca, bundle.roster)


@refuses(BadBundle, InvalidSignature, Refused, FrameError)
def signed_roster(federation, random):
    """A roster that the authority signs, however wrong, or one in a message."""
    if random.random() < 0.3:
        header, _ = wire_format.unpack(offer_roster(1, federation.signed).encode(), 10**5)
        raw = pack_frame(change_document(header, random), random)
        signed = unpack_roster(RosterOffer.read(raw))
    else:
        content = json.loads(federation.signed.content)
        content = dump_document(change_document(content, random), random)
        signed = SignedRoster(content, federation.authority.sign(content, SIGNATURE_ALGORITHM))
    answer = signed.verify(federation.bundle.ca)
    assert isinstance(answer.version, int) and answer.founders


@refuses(BadBundle)
def bundle_file(federation, random):
    folder = federation.folder / "trial"
    save_accepted(folder, federation.signed)
    path = folder / random.choice((roster.ROSTER, roster.SIGNATURE, roster.ACCEPTED))
    whole = path.read_bytes()
    document = json.loads((folder / roster.ACCEPTED).read_bytes())
    changed = dump_document(change_document(document, random), random)
    path.write_bytes(changed if path.name == roster.ACCEPTED else change_bytes(whole, random))
    try:
        load_signed_roster(folder)
    finally:
        path.write_bytes(whole)


@refuses(BadBundle)
def roster_document(federation, random):
    """A roster that its authority has signed by mistake, with an authority of a site's own."""
    document = json.loads(federation.signed.content)
    pem = federation.bundle.ca.decode()
    document |= {"authorities": {"own": [pem]}, "stewards": 2}
    document["members"][1] |= {"authority": "own", "subject": "dns:a", "fingerprint": ""}
    decode_roster(dump_document(change_document(document, random), random))


@refuses(BadBundle, InvalidSignature)
def steward_signatures(federation, random):
    content = federation.signed.content
    key = load_signing_key(federation.other.key)
    stewards = choose_stewards([key.public_key()], 1)
    signature = [[encode_key(key.public_key()), key.sign(content, ALGORITHM)]]
    verify_stewards(stewards, content, dump_document(change_document(signature, random), random))


@refuses(BadBundle, Refused)
def revocation_list(federation, random):
    now = datetime.datetime.now(datetime.UTC)
    issuer = x509.load_pem_x509_certificate(federation.bundle.ca).subject
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer).last_update(now)
    crl = builder.next_update(now).sign(federation.authority, hashes.SHA256())
    pem = crl.public_bytes(Encoding.PEM).splitlines(keepends=True)
    body = b64encode(change_bytes(b64decode(b"".join(pem[1:-1])), random))
    content = change_bytes(b"".join([*pem, *pem]), random)
    if random.random() < 0.8:
        content = pem[0] + body + b"\n" + pem[-1]
    check_crls(content, [federation.bundle.ca.decode()])
    is_revoked(federation.bundle.x509_certificate, content)
    stale_crls(content)


@refuses(BadBundle)
def request_file(federation, random):
    folder = federation.folder / "request"
    path = create_request(folder, "site1")
    path.write_bytes(change_bytes(path.read_bytes(), random))
    assert read_request(path).public_key.curve.name == "secp256r1"


@refuses(BadProof)
def proof(federation, random):
    one, two = (federation.endpoints[1].signer.sign(RUN, 3, 0, bytes([k]) * 32) for k in (1, 2))
    _, identity = federation.endpoints[1].signer.identify(federation.der)
    path = write_proof(federation.folder, check_proof(identity, one, two), 4)
    if random.random() < 0.7:
        document = change_document(json.loads(path.read_bytes()), random)
        path.write_bytes(dump_document(document, random))
    else:
        path.write_bytes(change_bytes(path.read_bytes(), random))
    read_proof(path, federation.bundle.ca)


def _write_entries(path, entries, random):
    """Write entries as a journal has them, one of them changed under the right checksum."""
    changed = random.randrange(len(entries))
    content = b""
    for number, (header, body) in enumerate(entries):
        if number == changed:
            header = change_document(header, random)
            body = dump_document(change_document(json.loads(body), random), random)
        packed = pack_frame(header, random, body)
        content += len(packed).to_bytes(8, "little") + packed
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(change_bytes(content, random) if random.random() < 0.1 else content)


@refuses(DamagedJournal)
def journal(federation, random):
    folder = federation.folder / "journal"
    votes = json.dumps({"1": [[[0, "up"], [3, "down"]], 5], "-1": [[], 0]}).encode()
    entry = {"run": RUN, "neighbour": 1, "round": 5, "kind": "up"}
    heads = [({"kind": "all", "run": RUN}, votes), (entry, b'"text"')]
    _write_entries(folder / "0000000000.log", heads, random)
    log = EdgeJournal([1], RUN, folder, keeps_history=True)
    try:
        log.restore(0)
    finally:
        log.close()


@refuses(DamagedCheckpoint)
def stored_messages(federation, random):
    folder = federation.folder / "messages"
    header, _ = wire_format.unpack(FRAME, 10**4)
    entries = [(header, json.dumps("text").encode())] * 2
    _write_entries(folder / "0000000003.log", entries, random)
    message_store.load(folder, 3, {"0000000003": 1}, ENVELOPE.run)


@refuses(DamagedCheckpoint)
def saved_checkpoint(federation, random):
    folder = federation.folder / "checkpoint"
    checkpoint_file.save(folder, 3, {"x": np.ones(3)}, {"run": RUN, "messages": {}})
    path = folder / f"{3:010d}{random.choice(('.json', '.safetensors'))}"
    if path.suffix == ".json" and random.random() < 0.7:
        document = change_document(json.loads(path.read_bytes()), random)
        if isinstance(document, dict) and "body" in document and random.random() < 0.5:
            body = json.loads(json.dumps(document["body"], default=str))
            digest = checkpoint_file.content_digest(checkpoint_file._canonical(body))
            document = {"body": body, "sha256": digest}
        path.write_bytes(dump_document(document, random))
    else:
        path.write_bytes(change_bytes(path.read_bytes(), random))
    checkpoint_file.load(folder, 3)


@refuses(OtherRun)
def mask_file(federation, random):
    keys = MaskKeys(
        0, RUN, federation.groups, federation.masks[0].identity, folder=federation.folder
    )
    keys.save()
    document = json.loads(keys.path.read_bytes())
    keys.path.write_bytes(dump_document(change_document(document, random), random))
    keys._load(keys.path)


@refuses()
def finished_file(federation, random):
    path = federation.folder / FINISHED_FILE
    document = change_document({"run": RUN, "neighbours": [1, 2]}, random)
    path.write_bytes(dump_document(document, random))
    load_finished(federation.folder, RUN)
    for aside in federation.folder.glob(f"{FINISHED_FILE}*"):
        aside.unlink()


def _unpack(packed):
    """Return a document as it is in the header of a frame."""
    head = wire_format.PREFIX.pack(wire_format.MAGIC, wire_format.VERSION, len(packed)) + packed
    return wire_format.unpack(reseal(head + bytes(4)), 10**6)[0]
