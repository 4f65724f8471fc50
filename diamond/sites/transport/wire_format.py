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
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack
import numpy as np

from ...core.parsing import refuse_unreadable

WORDS_PER_BLOCK = 512
MIN_BLOCKS = 16  # for fewer blocks CRC-32 alone is faster


def checksum(content: Any) -> int:
    """Return a 32-bit checksum of bytes, as fast as copying them.

    CRC-32; from 64 kB on, whole blocks of 4 kB count by sums of their 64-bit words: the sum of each
    block, and over all blocks the sums of their first words, second words, and so on. Changing one
    or two words, or swapping two, changes at least one of these sums.
    """
    view = memoryview(content)
    count = len(view) // (8 * WORDS_PER_BLOCK)
    if count < MIN_BLOCKS:
        return zlib.crc32(view)
    words = np.frombuffer(view, "<u8", count * WORDS_PER_BLOCK).reshape(count, WORDS_PER_BLOCK)
    crc = zlib.crc32(np.add.reduce(words, axis=1))
    crc = zlib.crc32(np.add.reduce(words, axis=0), crc)
    return zlib.crc32(view[words.nbytes :], crc)


MAGIC, VERSION = b"DMND", 3
PREFIX = struct.Struct("<4sBI")
TRAILER = struct.Struct("<I")
MAX_HEADER_BYTES = 2**16
MAX_REQUEST_BYTES = MAX_HEADER_BYTES + 64
ALIGNMENT = 64  # bytes: programs read arrays at such offsets without a copy
FLOAT_TYPES = ("float16", "bfloat16", "float32", "float64")
# integers: compressed messages, and masked ones
NUMBER_TYPES = (*FLOAT_TYPES, "uint8", "uint16", "uint32", "uint64")
# Fields whose name in headers differs.
WIRE_NAMES = {"consensus_step": "talk", "first": "from", "vote": "word", "first_stored": "kept"}


Frame = bytes | bytearray | memoryview  # never modified


class FrameError(ValueError):
    """Error: bytes are not the expected frame; the message says why."""


class EpochPending(FrameError):
    """Error: a request about an epoch that the site has not entered yet; to be repeated."""


class NotFinite(FrameError):
    """Error: a valid message has numbers that are not finite; a retry returns the same."""


class ArraySpec(NamedTuple):
    """Shape and type of one array of a message."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


Layout = tuple[ArraySpec, ...]


class Envelope(NamedTuple):
    """Identity of a message: digest of the run, sender and round.

    `consensus_step` counts from 1 the messages of a consensus before the message of the round.
    """

    run: str
    sender: int
    round: int
    consensus_step: int = 0


def layout_of(arrays: Sequence[Any]) -> Layout:
    """Return the layout of a message with such arrays."""
    return tuple(ArraySpec(_type_name(np.dtype(a.dtype)), tuple(a.shape)) for a in arrays)


@lru_cache(maxsize=64)
def _type_name(dtype: np.dtype) -> str:
    """Return the name of a type in headers."""
    if dtype.name not in NUMBER_TYPES:
        raise TypeError(f"a message has {dtype.name} numbers; only {', '.join(FLOAT_TYPES)} travel")
    return dtype.name


@lru_cache(maxsize=256)
def max_frame_bytes(expected: Layout) -> int:
    """Return the maximum size in bytes of a frame of this layout."""
    return _arrays_offset(MAX_HEADER_BYTES) + sum(leaf.size for leaf in expected) + TRAILER.size


def _arrays_offset(length: int) -> int:
    """Return the offset of the arrays after a header of this length."""
    return -(-(PREFIX.size + length) // ALIGNMENT) * ALIGNMENT


@lru_cache(maxsize=256)
def _describe_layout(expected: Layout) -> tuple[list[Any], list[int]]:
    """Return the layout as in a header, and the bytes of each array; do not modify them."""
    entries = [[leaf.dtype, list(leaf.shape)] for leaf in expected]
    return entries, [leaf.size for leaf in expected]


def encode(
    envelope: Envelope,
    arrays: Sequence[np.ndarray],
    attach: Callable[[Sequence[Any]], bytes] | None = None,
) -> Frame:
    """Encode a message as a frame; refuse numbers that are not finite.

    `attach` returns bytes for the header, such as a signature of the arrays' bytes.
    """
    _check_finite(arrays)
    entries, _ = _describe_layout(layout_of(arrays))
    header = {"kind": "message", **_wire_fields(envelope), "arrays": entries}
    content = [_raw_bytes(array) for array in arrays]
    if attach is not None:
        header["attached"] = attach(content)
    return pack(header, *content)


def decode(
    frame: Frame,
    envelope: Envelope,
    expected: Layout,
    read_attached: Callable[[bytes, memoryview], None] | None = None,
) -> list[np.ndarray]:
    """Decode the arrays of a frame, which must match `envelope` and the layout.

    `read_attached` gets the attached bytes, which must then exist, and the bytes of the arrays.
    """
    header, content = unpack(frame, max_frame_bytes(expected))
    entries, sizes = _describe_layout(expected)
    expected_header = {"kind": "message", **_wire_fields(envelope), "arrays": entries}
    attached = header.pop("attached", None) if read_attached else None
    _check_header(header, expected_header)
    total = sum(sizes)
    if len(content) != total:
        kind = "cut short" if len(content) < total else "followed by other bytes"
        raise FrameError(f"the arrays are {kind}: {len(content)} bytes where {total} belong")
    if read_attached is not None:
        if not isinstance(attached, bytes):
            raise FrameError("it is not signed")
        read_attached(attached, content)
    arrays, start = [], 0
    for leaf, size in zip(expected, sizes):
        flat = np.frombuffer(content[start : start + size], np.dtype(leaf.dtype))
        array = _little_endian(flat).reshape(leaf.shape)
        arrays.append(array)
        start += size
    _check_finite(arrays)
    return arrays


def _wire_fields(identity: Envelope) -> dict[str, Any]:
    """Return the fields of a header that identify a message."""
    return {WIRE_NAMES.get(name, name): value for name, value in identity._asdict().items()}


def pack(header: Mapping[str, Any], *content: Any) -> Frame:
    """Encode a frame of any kind."""
    encoded_header = msgpack.packb(dict(header))
    if len(encoded_header) > MAX_HEADER_BYTES:
        raise FrameError(f"a header of {len(encoded_header)} bytes; {MAX_HEADER_BYTES} is the most")
    head = PREFIX.pack(MAGIC, VERSION, len(encoded_header)) + encoded_header
    if any(len(array) for array in content):
        head = head.ljust(_arrays_offset(len(encoded_header)), b"\0")
    frame = bytearray().join([head, *content, bytes(TRAILER.size)])
    TRAILER.pack_into(
        frame, len(frame) - TRAILER.size, checksum(memoryview(frame)[: -TRAILER.size])
    )
    return frame


def unpack(frame: Frame, max_bytes: int) -> tuple[dict[str, Any], memoryview]:
    """Decode the header of a frame of at most `max_bytes` bytes; return it with the content."""
    if len(frame) > max_bytes:
        raise FrameError(f"{len(frame)} bytes; at most {max_bytes} can belong here")
    if len(frame) < PREFIX.size + TRAILER.size:
        raise FrameError(f"{len(frame)} bytes are too few for a frame")
    magic, version, length = PREFIX.unpack_from(frame)
    if magic != MAGIC:
        raise FrameError("does not start like a frame of diamond")
    if version != VERSION:
        raise FrameError(f"version {version} of the format; this side speaks {VERSION}")
    view = memoryview(frame)
    end = PREFIX.size + length
    start = end if end + TRAILER.size == len(frame) else _arrays_offset(length)
    if length > MAX_HEADER_BYTES or start + TRAILER.size > len(frame):
        raise FrameError(f"a header of {length} bytes does not fit in")
    (expected_checksum,) = TRAILER.unpack_from(frame, len(frame) - TRAILER.size)
    if checksum(view[: -TRAILER.size]) != expected_checksum:
        raise FrameError("damaged: its checksum is not that of its content")
    with refuse_unreadable(FrameError, "its header is no msgpack"):
        header = msgpack.unpackb(view[PREFIX.size : end], max_ext_len=0)
    if not isinstance(header, dict):
        raise FrameError("its header is no map")
    return header, view[start : -TRAILER.size]


@refuse_unreadable(FrameError, "a header that cannot be read")
def _check_header(header: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    check_fields(header, expected)
    for name, value in expected.items():
        if type(header[name]) is not type(value) or header[name] != value:
            raise FrameError(f"{name} is {shorten(header[name])} where {shorten(value)} belongs")


def check_fields(header: Mapping[str, Any], expected: Iterable[str]) -> None:
    """Raise `FrameError` unless the header has exactly these fields."""
    if set(header) != set(expected):
        raise FrameError(f"a header with the fields {shorten(sorted(map(str, header)))}")


def _check_finite(arrays: Sequence[np.ndarray]) -> None:
    for array in arrays:
        if array.dtype == np.uint64:
            continue
        if not np.logical_and.reduce(np.isfinite(array), axis=None):
            raise NotFinite("numbers that are not finite")


def _raw_bytes(array: np.ndarray) -> Any:
    """Return the bytes of the array, without a copy if they are contiguous."""
    contiguous = np.ascontiguousarray(_little_endian(array))
    return contiguous.reshape(-1).view(np.uint8)


def _little_endian(array: np.ndarray) -> np.ndarray:
    """Swap the bytes of the array on big-endian machines."""
    return array if np.little_endian else array.byteswap()


def shorten(value: Any) -> str:
    """Return the value as short text."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
