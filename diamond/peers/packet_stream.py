"""Packets on a connection, in both directions: a head, then its content.

    8 bytes    length of the content
    4 bytes    number of the request, which its response repeats
    1 byte     kind: a request, a response, or a refusal

Many requests can be in flight, and their responses come in any order. A packet is read into its own
memory and written without a copy.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .wire_format import ALIGN

HEAD = struct.Struct("<QIB")
ANSWER, REFUSED, DIFFERS, STOPPED, OUTDATED, MISREAD, ASK = range(7)
FIRST = 2**16  # bytes read before the length of a packet is known
CHUNK = 2**18  # bytes passed to the connection at once
LONGEST = 4096  # bytes of a refusal


class TooLong(ConnectionError):
    """Error: a packet is larger than the other end may send."""


class Packets(asyncio.BufferedProtocol):
    """One connection; `most` bounds a packet, `heard(number, code, body)` receives each."""

    def __init__(self, most: int, heard: Callable[[int, int, memoryview], None]):
        self.most, self.heard = most, heard
        self.cause: Exception | None = None  # error that ended the connection, if any
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_lost: Callable[[], None] = lambda: None
        self.on_too_long: Callable[[int, TooLong], None] = lambda number, cause: self.fail(cause)
        self._deaf = False  # incoming bytes are discarded
        self.transport: Any = None
        self._scratch = memoryview(bytearray(FIRST))
        self._head, self._number, self._code = b"", 0, 0
        self._body: memoryview | None = None
        self._filled = 0
        self._sending = asyncio.Lock()
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.BaseProtocol`."""
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self.cause = self.cause or error
        self._writable.set()  # wakes waiting writers
        if not self.lost.done():
            self.lost.set_result(None)
        self.on_lost()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._writable.set()

    def eof_received(self) -> bool:
        """See `asyncio.BufferedProtocol`."""
        return False

    def get_buffer(self, hint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._scratch if self._body is None else self._body[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        if self._deaf:
            return
        if self._body is None:
            self._read(self._scratch[:count])
            return
        self._filled += count
        if self._filled == len(self._body):
            self._deliver()

    def _read(self, data: memoryview) -> None:
        """Handle bytes received but not yet assigned to a packet."""
        while data and not self.lost.done():
            if self._body is None:
                wanted = HEAD.size - len(self._head)
                self._head += bytes(data[:wanted])
                data = data[wanted:]
                if len(self._head) < HEAD.size or not self._begin():
                    return
            assert self._body is not None
            part = data[: len(self._body) - self._filled]
            self._body[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            data = data[len(part) :]
            if self._filled == len(self._body):
                self._deliver()

    def _begin(self) -> bool:
        """Allocate memory for the announced packet, unless it is too large."""
        length, self._number, self._code = HEAD.unpack(self._head)
        self._head = b""
        if length > self.most:
            self._deaf = True
            cause = TooLong(f"{length} bytes, larger than anything that belongs here")
            self.on_too_long(self._number, cause)
            return False
        self._body, self._filled = _room(length), 0
        return True

    def _deliver(self) -> None:
        body, self._body = self._body, None
        assert body is not None
        self.heard(self._number, self._code, body)

    def put(self, number: int, code: int, body: bytes) -> None:
        """Write a small packet, the first of its connection."""
        self._write([HEAD.pack(len(body), number, code), body])

    async def send(self, number: int, code: int, body: Any) -> None:
        """Write a packet; wait if the other end reads slowly."""
        view = memoryview(body)
        if self.push(number, code, view):
            return
        async with self._sending:
            self._write([HEAD.pack(len(view), number, code)])
            for start in range(0, len(view), CHUNK):
                await self._writable.wait()
                self._write([view[start : start + CHUNK]])

    def push(self, number: int, code: int, body: Any) -> bool:
        """Write a packet immediately; False if it is long or another one is pending."""
        if len(body) > CHUNK or not self._writable.is_set() or self._sending.locked():
            return False
        self._write([HEAD.pack(len(body), number, code), body])
        return True

    def _write(self, parts: Sequence[Any]) -> None:
        if self.lost.done() or self.transport.is_closing():
            raise ConnectionResetError("the connection was lost")
        self.transport.writelines([part for part in parts if len(part)])

    def fail(self, cause: Exception) -> None:
        """Abort the connection."""
        self.cause = self.cause or cause
        if self.transport is not None:
            self.transport.abort()

    def close(self) -> None:
        """Close the connection once everything is written."""
        if self.transport is not None:
            self.transport.close()


def _room(length: int) -> memoryview:
    """Allocate uninitialized memory in which a frame's arrays are aligned."""
    room = np.empty(length + ALIGN, np.uint8)
    start = -room.ctypes.data % ALIGN
    return room.data[start : start + length]
