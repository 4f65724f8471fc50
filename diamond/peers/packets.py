"""Packets on a connection, both ways: a head, then as many bytes as it says.

    8 bytes    length of what follows the head
    4 bytes    number of the request, which its answer repeats
    1 byte     what it is: a request, an answer, or why there is none

Many requests can be under way at once, and their answers come in any order. A packet is read into
its own memory and written from where it lies.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .frame import ALIGN

HEAD = struct.Struct("<QIB")
ANSWER, REFUSED, DIFFERS, STOPPED, OUTDATED, MISREAD, ASK = range(7)
FIRST = 2**16  # bytes that are read before it is known how long a packet is
CHUNK = 2**18  # bytes that are handed to the connection at once
LONGEST = 4096  # bytes of a refusal


class TooLong(ConnectionError):
    """A packet of more bytes than the other end may send."""


class Packets(asyncio.BufferedProtocol):
    """One connection. `most`: bytes of a packet; `heard(number, code, body)` gets each of them."""

    def __init__(self, most: int, heard: Callable[[int, int, memoryview], None]):
        self.most, self.heard = most, heard
        self.cause: Exception | None = None  # why it was lost, if by a fault
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_lost: Callable[[], None] = lambda: None
        self.on_too_long: Callable[[int, TooLong], None] = lambda number, cause: self.fail(cause)
        self._deaf = False  # what still comes is thrown away
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
        self._writable.set()  # whoever waits to write finds out
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
        """Bytes of which it is not known whose they are."""
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
        """Make room for what the head announces, unless that is too much."""
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
        """Write a packet of those bytes; waits where the other end reads more slowly."""
        view = memoryview(body)
        if self.push(number, code, view):
            return
        async with self._sending:
            self._write([HEAD.pack(len(view), number, code)])
            for start in range(0, len(view), CHUNK):
                await self._writable.wait()
                self._write([view[start : start + CHUNK]])

    def push(self, number: int, code: int, body: Any) -> bool:
        """Write a packet at once; False if it is long, or another has to be waited for."""
        if len(body) > CHUNK or not self._writable.is_set() or self._sending.locked():
            return False
        self._write([HEAD.pack(len(body), number, code), body])
        return True

    def _write(self, parts: Sequence[Any]) -> None:
        if self.lost.done() or self.transport.is_closing():
            raise ConnectionResetError("the connection was lost")
        self.transport.writelines([part for part in parts if len(part)])

    def fail(self, cause: Exception) -> None:
        """Give the connection up at once."""
        self.cause = self.cause or cause
        if self.transport is not None:
            self.transport.abort()

    def close(self) -> None:
        """End the connection once all is written."""
        if self.transport is not None:
            self.transport.close()


def _room(length: int) -> memoryview:
    """Memory for so many bytes, where a frame's arrays lie as programs want them; not cleared."""
    room = np.empty(length + ALIGN, np.uint8)
    start = -room.ctypes.data % ALIGN
    return room.data[start : start + length]
