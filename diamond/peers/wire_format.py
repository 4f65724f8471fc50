"""Wire format of messages: a msgpack header, then raw little-endian arrays.

    4 bytes    magic
    1 byte     version
    4 bytes    length of the header
    header     a msgpack map
    zeros      up to a multiple of 64 bytes, if any array follows
    arrays     one after another, each in C order
    4 bytes    `checksum` of everything before, against damage; TLS protects against forgery

Both ends know the arrays of a message from problem and algorithm, so a frame is compared with the
expected layout before memory of its claimed size is allocated. Nothing in a frame can execute.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack
import numpy as np

from .checksum import checksum

MAGIC, VERSION = b"DMND", 3
PREFIX = struct.Struct("<4sBI")
SEAL = struct.Struct("<I")
LONGEST = 2**16  # bytes of a header
REQUEST = LONGEST + 64  # maximum bytes of a request
ALIGN = 64  # bytes: programs read arrays at such offsets without a copy
FLOATS = ("float16", "bfloat16", "float32", "float64")
NUMBERS = (*FLOATS, "uint8", "uint16", "uint32")  # the last three are for compressed messages


Frame = bytes | bytearray | memoryview  # never modified


class FrameError(ValueError):
    """Error: bytes are not the expected frame; the message says why."""


class NotFinite(FrameError):
    """Error: a valid message has numbers that are not finite; a retry returns the same."""


class Leaf(NamedTuple):
    """Shape and type of one array of a message."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


Layout = tuple[Leaf, ...]


class Envelope(NamedTuple):
    """Identity of a message: digest of the run, sender and round.

    `talk` counts from 1 the messages about numbers before the message of the round.
    """

    run: str
    sender: int
    round: int
    talk: int = 0


class Ask(NamedTuple):
    """Request for the message of `round`; the caller never needs one before `durable`."""

    run: str
    sender: int
    round: int
    durable: int
    talk: int = 0


def layout(arrays: Sequence[Any]) -> Layout:
    """Return the layout of a message with such arrays."""
    return tuple(Leaf(_name(np.dtype(a.dtype)), tuple(a.shape)) for a in arrays)


@lru_cache(maxsize=64)
def _name(dtype: np.dtype) -> str:
    """Return the name of a type in headers."""
    if dtype.name not in NUMBERS:
        raise TypeError(f"a message has {dtype.name} numbers; only {', '.join(FLOATS)} travel")
    return dtype.name


@lru_cache(maxsize=256)
def limit(expected: Layout) -> int:
    """Return the maximum size in bytes of a frame of this layout."""
    return _aligned(LONGEST) + sum(leaf.size for leaf in expected) + SEAL.size


def _aligned(length: int) -> int:
    """Return the offset of the arrays after a header of this length."""
    return -(-(PREFIX.size + length) // ALIGN) * ALIGN


@lru_cache(maxsize=256)
def _told(expected: Layout) -> tuple[list[Any], list[int]]:
    """Return the layout as in a header, and the bytes of each array; do not modify them."""
    told = [[leaf.dtype, list(leaf.shape)] for leaf in expected]
    return told, [leaf.size for leaf in expected]


def encode(envelope: Envelope, arrays: Sequence[np.ndarray]) -> Frame:
    """Encode a message as a frame; refuse numbers that are not finite."""
    _finite(arrays)
    told, _ = _told(layout(arrays))
    header = {"kind": "message", **envelope._asdict(), "arrays": told}
    return pack(header, *(_raw(array) for array in arrays))


def decode(frame: Frame, envelope: Envelope, expected: Layout) -> list[np.ndarray]:
    """Decode the arrays of a frame, which must match `envelope` and the layout."""
    header, content = unpack(frame, limit(expected))
    told, sizes = _told(expected)
    wanted = {"kind": "message", **envelope._asdict(), "arrays": told}
    _fields(header, wanted)
    for name, value in wanted.items():
        if type(header[name]) is not type(value) or header[name] != value:
            raise FrameError(f"{name} is {_said(header[name])} where {_said(value)} belongs")
    size = sum(sizes)
    if len(content) != size:
        kind = "cut short" if len(content) < size else "followed by other bytes"
        raise FrameError(f"the arrays are {kind}: {len(content)} bytes where {size} belong")
    arrays, start = [], 0
    for leaf, bytes_of_it in zip(expected, sizes):
        flat = np.frombuffer(content[start : start + bytes_of_it], np.dtype(leaf.dtype))
        array = _little(flat).reshape(leaf.shape)
        arrays.append(array)
        start += bytes_of_it
    _finite(arrays)
    return arrays


def gone(envelope: Envelope) -> Frame:
    """Encode the notice that the sender rolled back and will never send this message."""
    return pack({"kind": "gone", **envelope._asdict()})


def encode_ask(ask: Ask, kind: str = "ask") -> Frame:
    """Encode a request: "ask" for a message, "follow" for it and all later ones.

    "word" requests the edge vote; "kept" requests nothing and reports what is durable.
    """
    return pack({"kind": kind, **ask._asdict()})


def decode_ask(header: Mapping[str, Any]) -> Ask:
    """Decode the request in a header."""
    _fields(header, ["kind", *Ask._fields])
    if header["kind"] not in ("ask", "follow", "word", "kept"):
        raise FrameError(f"a request for {_said(header['kind'])}, of which nothing is known here")
    ask = Ask(*(header[name] for name in Ask._fields))
    if not isinstance(ask.run, str) or any(type(number) is not int for number in ask[1:]):
        raise FrameError("a request needs the digest of a run and whole numbers")
    if not 0 <= ask.durable <= ask.round < 2**31 or not 0 <= ask.talk < 2**31:
        raise FrameError(f"a request for round {ask.round}, kept up to {ask.durable}: no such one")
    return ask


def pack(header: Mapping[str, Any], *content: Any) -> Frame:
    """Encode a frame of any kind."""
    told = msgpack.packb(dict(header))
    if len(told) > LONGEST:
        raise FrameError(f"a header of {len(told)} bytes; {LONGEST} is the most")
    head = PREFIX.pack(MAGIC, VERSION, len(told)) + told
    if any(len(part) for part in content):
        head = head.ljust(_aligned(len(told)), b"\0")
    whole = bytearray().join([head, *content, bytes(SEAL.size)])
    SEAL.pack_into(whole, len(whole) - SEAL.size, checksum(memoryview(whole)[: -SEAL.size]))
    return whole


def unpack(frame: Frame, most: int) -> tuple[dict[str, Any], memoryview]:
    """Decode the header of a frame of at most `most` bytes; return it with the content."""
    if len(frame) > most:
        raise FrameError(f"{len(frame)} bytes; at most {most} can belong here")
    if len(frame) < PREFIX.size + SEAL.size:
        raise FrameError(f"{len(frame)} bytes are too few for a frame")
    magic, version, length = PREFIX.unpack_from(frame)
    if magic != MAGIC:
        raise FrameError("does not begin as a frame of diamond does")
    if version != VERSION:
        raise FrameError(f"version {version} of the format; this side speaks {VERSION}")
    whole = memoryview(frame)
    end = PREFIX.size + length
    start = end if end + SEAL.size == len(frame) else _aligned(length)
    if length > LONGEST or start + SEAL.size > len(frame):
        raise FrameError(f"a header of {length} bytes does not fit in")
    (seal,) = SEAL.unpack_from(frame, len(frame) - SEAL.size)
    if checksum(whole[: -SEAL.size]) != seal:
        raise FrameError("damaged: its checksum is not that of its content")
    try:
        header = msgpack.unpackb(whole[PREFIX.size : end], max_ext_len=0)
    except (ValueError, TypeError, msgpack.UnpackException) as cause:
        raise FrameError(f"its header is no msgpack ({type(cause).__name__})") from None
    if not isinstance(header, dict):
        raise FrameError("its header is no map")
    return header, whole[start : -SEAL.size]


def _fields(header: Mapping[str, Any], wanted: Any) -> None:
    if set(header) != set(wanted):
        raise FrameError(f"a header with the fields {_said(sorted(map(str, header)))}")


def _finite(arrays: Sequence[np.ndarray]) -> None:
    for array in arrays:
        if not np.logical_and.reduce(np.isfinite(array), axis=None):
            raise NotFinite("numbers that are not finite")


def _raw(array: np.ndarray) -> Any:
    """Return the bytes of the array, without a copy if they are contiguous."""
    whole = np.ascontiguousarray(_little(array))
    return whole.reshape(-1).view(np.uint8)


def _little(array: np.ndarray) -> np.ndarray:
    """Swap the bytes of the array on big-endian machines."""
    return array if np.little_endian else array.byteswap()


def _said(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
