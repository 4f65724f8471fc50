"""Files of frames, such as journals and stored messages: one format, one writer and one reader.

    8 bytes    length of the frame
    frame      as in `wire_format.pack`, with its checksum

Entries follow one another. The last one may be cut short by a power cut (`is_torn`).
"""

import os
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from ..transport import wire_format
from ..transport.wire_format import Frame, FrameError

LENGTH = struct.Struct("<Q")


class LogEntry(NamedTuple):
    """Entry of a file: header and content of its frame, which lies from `start` to `end`."""

    header: dict[str, Any]
    content: memoryview
    start: int
    end: int


def encode_entry(frame: Frame) -> tuple[bytes, Frame]:
    """Return the parts of the entry of a frame, which is not copied."""
    return LENGTH.pack(len(frame)), frame


def append_entries(stream: BinaryIO, entries: bytes) -> None:
    """Append entries, which are durable once this function returns."""
    stream.write(entries)
    stream.flush()
    os.fsync(stream.fileno())


def decode_entry(content: bytes, start: int) -> LogEntry:
    """Return the entry that starts there; raise `FrameError` if it is damaged or cut short."""
    begin = start + LENGTH.size
    if begin > len(content):
        raise FrameError("cut short")
    end = begin + LENGTH.unpack_from(content, start)[0]
    if end > len(content):
        raise FrameError("cut short")
    return LogEntry(*wire_format.unpack(memoryview(content)[begin:end], len(content)), begin, end)


def read_entries(content: bytes) -> Iterator[LogEntry]:
    """Yield all entries; raise `FrameError` at the first that is damaged or cut short."""
    start = 0
    while start < len(content):
        entry = decode_entry(content, start)
        yield entry
        start = entry.end


def is_torn(content: bytes, start: int) -> bool:
    """Return whether an interrupted append leaves these bytes: cut short, or trailing zeros.

    If a valid entry follows, the append was not interrupted.
    """
    place = content.find(wire_format.MAGIC, start + LENGTH.size + 1)
    while place >= 0:
        try:
            decode_entry(content, place - LENGTH.size)
            return False
        except FrameError:
            place = content.find(wire_format.MAGIC, place + 1)
    rest = content[start:]
    if len(rest) < LENGTH.size or not any(rest):
        return True
    (length,) = LENGTH.unpack_from(rest)
    cut = length > len(rest) - LENGTH.size
    return cut or not any(rest[-wire_format.TRAILER.size :])
