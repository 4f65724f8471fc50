"""Bytes from outside, whatever they are: every parser ends in a value or in a refusal."""

import asyncio
import logging
import os
import random
import socket
import time
from types import SimpleNamespace

import msgpack
import pytest
from frame_fuzzing import ARRAYS, ENVELOPE, LAYOUT
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from parser_fuzzing import PARSERS, RUN, Federation, pack_document

from diamond.sites.rounds.node_status import NeighbourStatus
from diamond.sites.transport import relay_handshake, wire_format
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.errors import Refused
from diamond.sites.transport.in_process_transport import run_simulated
from diamond.sites.transport.relay import RelayHub
from diamond.sites.transport.timeouts import Timeouts, WaitRecord
from diamond.sites.transport.wire_format import FrameError
from diamond.sites.trust.mask_keys import CONTEXT, agree_on_keys
from diamond.sites.trust.signed_records import sign_record

SECONDS = 600.0  # of `make test-slow`, all parsers together
EXAMPLES = 100  # of each parser, drawn by Hypothesis and at random


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("diamond.sites"), "disabled", True)
        patch.setattr(os, "fsync", lambda descriptor: None)  # thousands of small files
        federation = Federation(tmp_path_factory.mktemp("federation"))
        yield federation
        federation.loop.close()


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_refuses_or_accepts_mutated_inputs(federation, name):
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def fuzz(source):
        PARSERS[name](federation, source)

    fuzz()
    for seed in range(EXAMPLES):
        PARSERS[name](federation, random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_refuses_or_accepts_mutated_inputs_for_long(federation, name):
    seed, end = int.from_bytes(os.urandom(4)), time.monotonic() + SECONDS / len(PARSERS)
    while time.monotonic() < end:
        seed += 1
        try:
            PARSERS[name](federation, random.Random(seed))
        except Exception as error:
            raise AssertionError(f"{name} with random.Random({seed})") from error


def of_version_5(certificate):
    place = certificate.index(b"\xa0\x03\x02\x01") + 4
    return certificate[:place] + b"\x04" + certificate[place + 1 :]


@pytest.mark.parametrize(
    ("place", "value"), [(3, 7), (4, 7), (4, {"a": 1}), (5, None), (2, "certificate")]
)
def test_an_attachment_without_its_lists_is_refused(federation, place, value):
    document = list(federation.attached)
    document[place] = of_version_5(federation.der) if value == "certificate" else value
    packed, envelope = msgpack.packb(document), ENVELOPE._replace(run=RUN, sender=1)
    raw = wire_format.encode(envelope, ARRAYS, lambda parts: packed)
    with pytest.raises(FrameError, match=r"cannot be read|not of this federation's authority"):
        federation.endpoint(0).decode(raw, envelope, LAYOUT)


def test_a_certificate_of_another_version_that_is_passed_on_is_named(federation):
    document = list(federation.attached)
    document[4] = [of_version_5(federation.der)]
    packed, envelope = msgpack.packb(document), ENVELOPE._replace(run=RUN, sender=1)
    raw = wire_format.encode(envelope, ARRAYS, lambda parts: packed)
    federation.lines.clear()
    federation.endpoint(0).decode(raw, envelope, LAYOUT)
    (line,) = federation.lines
    assert line.startswith("agent 1: passed on a false statement: its certificate is not of this")


def test_a_deeply_nested_field_of_a_message_is_refused(federation):
    header = {"kind": "message", **wire_format._wire_fields(ENVELOPE), "arrays": "@deep@"}
    for depth in (40, 1000):
        packed = pack_document(header, random.Random(0)).replace(b"\x91", b"")
        packed = packed.replace(b"\xc0", b"\x91" * depth + b"\xc0")
        head = wire_format.PREFIX.pack(wire_format.MAGIC, wire_format.VERSION, len(packed)) + packed
        frame = head + wire_format.checksum(head).to_bytes(4, "little")
        with pytest.raises(FrameError):
            wire_format.decode(frame, ENVELOPE, LAYOUT)


def test_keys_of_masks_that_cannot_be_used_are_refused(federation):
    own, other = federation.masks
    content, certificate, signature = msgpack.unpackb(other.record)
    damaged = msgpack.packb([content, of_version_5(certificate), signature])
    weak = sign_record(federation.bundles[2], CONTEXT, other._content(2, bytes(32)))
    for record, words in ((damaged, "authority"), (weak, "leads to no secret")):
        with pytest.raises(Refused, match=words):
            own.add_group(1, [[2, record]])


def test_an_answer_without_a_usable_key_is_asked_for_again(federation):
    """A false key stops nobody: the site waits for a true one, and says for whom and why."""
    keys, true, reasons = federation.mask_keys(0), federation.mask_keys(1), []
    answers = {
        "mask key": [
            {},
            {"record": 7},
            {"record": federation.masks[1].record},
            {"record": true.record},
        ],
        "mask keys": [{"records": [[2, b""]]}, {"records": [[2, federation.masks[1].record]]}],
    }
    record = WaitRecord()

    class Neighbour:
        async def send_request(self, j, request):
            reasons.append(record.last_error)
            return wire_format.pack(answers[wire_format.unpack(request, 10**4)[0]["kind"]].pop(0))

    client = SimpleNamespace(
        transport=Neighbour(),
        timeouts=Timeouts(),
        wait_records={1: record},
        neighbour_status={1: NeighbourStatus()},
        service=SimpleNamespace(site_name=str, notify_waiting=lambda: None),
    )
    run_simulated(agree_on_keys(keys, client))
    assert keys.is_complete and not any(answers.values())
    assert "in the name of site1, which did not sign it" in reasons[3]


def test_a_stranger_writes_one_short_line_into_the_log_of_a_relay(federation):
    lines, bundle = [], federation.other
    hub = RelayHub(bundle.ca, lambda: bundle.roster, audit=Audit(lines.append))
    fields = msgpack.unpackb(relay_handshake.encode_hello(bundle, "site2", bytes(32)))
    fields[3] = of_version_5(fields[3])
    hello = msgpack.packb(fields)

    async def attempt():
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(hub.admit(theirs, "10.0.0.9:1234"))
        await loop.sock_sendall(ours, relay_handshake.MAGIC)
        await loop.sock_recv(ours, 32)
        await loop.sock_sendall(ours, relay_handshake.LENGTH.pack(len(hello)) + hello)
        await task
        ours.close()

    asyncio.run(attempt())
    assert len(lines) == 1 and len(lines[0]) < 200 and "authority" in lines[0]
