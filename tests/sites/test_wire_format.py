"""Frames: every message arrives bit for bit, and nothing else is accepted."""

import tracemalloc

import ml_dtypes
import msgpack
import numpy as np
import pytest
from frame_fuzzing import fuzz, reseal

from diamond.sites.transport import wire_format
from diamond.sites.transport.wire_format import (
    ArraySpec,
    Envelope,
    FrameError,
    decode,
    encode,
    layout_of,
)

pytestmark = pytest.mark.quick

ENVELOPE = Envelope("d1ce", 3, 7)


def message(seed=0, dtype=np.float32):
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(dtype) for shape in [(3, 4), (), (5,), (0, 2)]]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_what_is_sent_arrives_bit_for_bit(dtype):
    sent = message(dtype=dtype)
    got = decode(encode(ENVELOPE, sent), ENVELOPE, layout_of(sent))
    for one, other in zip(sent, got, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def test_the_bytes_follow_the_documented_format():
    sent = [np.array([1.0, -2.0], np.float32)]
    raw = encode(ENVELOPE, sent)
    header = msgpack.unpackb(raw[9 : 9 + int.from_bytes(raw[5:9], "little")])
    assert raw[:5] == b"DMND\x03"
    assert header == {
        "kind": "message",
        "run": "d1ce",
        "sender": 3,
        "round": 7,
        "talk": 0,
        "arrays": [["float32", [2]]],
    }
    assert raw[-12:-4] == bytes.fromhex("0000803f000000c0")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda raw: raw[:-30], "checksum"),
        (lambda raw: raw[:5], "too few"),
        (lambda raw: raw + b"more", "checksum"),
        (lambda raw: b"HTTP" + raw[4:], "does not start"),
        (lambda raw: raw[:4] + b"\x01" + raw[5:], "version 1"),
        (lambda raw: raw[:5] + b"\xff\xff\xff\x7f" + raw[9:], "does not fit"),
        (lambda raw: raw[:-10] + b"\x00" + raw[-9:], "checksum"),
        (lambda raw: reseal(raw[:-14] + raw[-4:]), "cut short"),
        (lambda raw: reseal(raw[:-4] + b"more" + raw[-4:]), "followed by other bytes"),
        (lambda raw: raw + b"\0" * 2**20, "at most"),
        (lambda raw: wire_format.pack({"kind": "message"}), "the fields"),
        (lambda raw: wire_format.pack({"kind": msgpack.Timestamp(0)}), "no msgpack"),
        (lambda raw: wire_format.pack({"kind": msgpack.ExtType(1, b"code")}), "no msgpack"),
        (lambda raw: reseal(raw[:9] + b"\xc1" + raw[10:]), "no msgpack"),
    ],
)
def test_a_damaged_frame_is_refused(change, reason):
    sent = message()
    with pytest.raises(FrameError, match=reason):
        decode(change(encode(ENVELOPE, sent)), ENVELOPE, layout_of(sent))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (ENVELOPE._replace(round=6), "round is 6 where 7"),
        (ENVELOPE._replace(round=8), "round is 8 where 7"),
        (ENVELOPE._replace(sender=1), "sender is 1 where 3"),
        (ENVELOPE._replace(run="beef"), "run is 'beef'"),
    ],
)
def test_a_message_of_another_round_sender_or_run_is_refused(other, reason):
    with pytest.raises(FrameError, match=reason):
        decode(encode(other, message()), ENVELOPE, layout_of(message()))


def test_wrong_layouts_are_refused_before_memory_is_allocated():
    huge = (ArraySpec("float32", (10**9,)),)
    header = {"kind": "message", "run": "d1ce", "sender": 3, "round": 7, "talk": 0}
    raw = wire_format.pack(header | {"arrays": [["float32", [10**9]]]}, b"tiny")
    tracemalloc.start()
    with pytest.raises(FrameError, match="cut short"):
        decode(raw, ENVELOPE, huge)
    with pytest.raises(FrameError, match="arrays is"):
        decode(raw, ENVELOPE, layout_of(message()))
    with pytest.raises(FrameError, match="arrays is"):
        decode(encode(ENVELOPE, message(dtype=np.float64)), ENVELOPE, layout_of(message()))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_numbers_that_are_not_finite_are_refused_at_both_ends():
    sent = [np.array([1.0, np.nan])]
    with pytest.raises(FrameError, match="not finite"):
        encode(ENVELOPE, sent)
    raw = encode(ENVELOPE, [np.array([1.0, 2.0])])
    raw = reseal(raw[:-12] + np.array([np.inf]).tobytes() + raw[-4:])
    with pytest.raises(FrameError, match="not finite"):
        decode(raw, ENVELOPE, layout_of(sent))


def test_only_floats_are_encoded():
    with pytest.raises(TypeError, match="int64 numbers"):
        encode(ENVELOPE, [np.arange(3)])


def test_ten_thousand_mutated_frames_raise_only_frame_errors():
    accepted = fuzz(10_000, seed=0)
    assert 0 < accepted < 1000  # mutations that a new checksum covers and that leave finite numbers
