"""Packets on a connection, in both directions: a head, then its content.

    8 bytes    length of the content
    4 bytes    number of the request, which its response repeats
    1 byte     kind: a request, a response, a refusal, or a probe whether the other end lives

Many requests can be in flight, and their responses come in any order. A packet is read into its own
memory and written without a copy.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .wire_format import ALIGNMENT

HEADER = struct.Struct("<QIB")
RESPONSE, REFUSED, RUN_MISMATCH, RUN_FAILED, OUTDATED_ROSTER, UNREADABLE, REQUEST, PROBE = range(8)
SCRATCH_BYTES = 2**16  # read before the length of a packet is known
CHUNK_BYTES = 2**18  # passed to the connection at once
MAX_REFUSAL_BYTES = 4096


class PacketTooLong(ConnectionError):
    """Error: a packet is larger than the other end may send."""


class PacketStream(asyncio.BufferedProtocol):
    """One connection; `on_packet(number, code, body)` gets each packet, of at most `max_bytes`.

    Requests have at most `max_request_bytes`; at first the same.
    """

    def __init__(self, max_bytes: int, on_packet: Callable[[int, int, memoryview], None]):
        self.max_bytes = self.max_request_bytes = max_bytes
        self.on_packet = on_packet
        self.cause: Exception | None = None  # error that ended the connection, if any
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.close_listeners: list[Callable[[], None]] = []  # called once it is closed
        self.on_too_long: Callable[[int, PacketTooLong], None] = lambda number, cause: self.abort(
            cause
        )
        self._discarding = False  # incoming bytes are discarded
        self.transport: Any = None
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._head, self._number, self._code = b"", 0, 0
        self._body: memoryview | None = None
        self._filled = 0
        self._sending = asyncio.Lock()
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.cause = self.cause or error
        self._writable.set()  # wakes waiting writers
        if not self.closed.done():
            self.closed.set_result(None)
        for on_closed in self.close_listeners:
            on_closed()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, hint: int) -> memoryview:
        return self._scratch if self._body is None else self._body[self._filled :]

    def buffer_updated(self, count: int) -> None:
        if self._discarding:
            return
        if self._body is None:
            self._read(self._scratch[:count])
            return
        self._filled += count
        if self._filled == len(self._body):
            self._deliver()

    def _read(self, data: memoryview) -> None:
        """Handle bytes received but not yet assigned to a packet."""
        while data and not self.closed.done():
            if self._body is None:
                missing = HEADER.size - len(self._head)
                self._head += bytes(data[:missing])
                data = data[missing:]
                if len(self._head) < HEADER.size or not self._start_packet():
                    return
            assert self._body is not None
            part = data[: len(self._body) - self._filled]
            self._body[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            data = data[len(part) :]
            if self._filled == len(self._body):
                self._deliver()

    def _start_packet(self) -> bool:
        """Allocate memory for the announced packet, unless it is too large."""
        length, self._number, self._code = HEADER.unpack(self._head)
        self._head = b""
        if length > (self.max_request_bytes if self._code == REQUEST else self.max_bytes):
            self._discarding = True
            cause = PacketTooLong(f"{length} bytes, larger than anything that belongs here")
            self.on_too_long(self._number, cause)
            return False
        self._body, self._filled = _allocate_aligned(length), 0
        return True

    def _deliver(self) -> None:
        body, self._body = self._body, None
        assert body is not None
        self.on_packet(self._number, self._code, body)

    def write_small(self, number: int, code: int, body: bytes) -> None:
        """Write a small packet, the first of its connection."""
        self._write([HEADER.pack(len(body), number, code), body])

    async def send(self, number: int, code: int, body: Any) -> None:
        """Write a packet; wait if the other end reads slowly."""
        view = memoryview(body)
        if self.try_send(number, code, view):
            return
        async with self._sending:
            self._write([HEADER.pack(len(view), number, code)])
            for start in range(0, len(view), CHUNK_BYTES):
                await self._writable.wait()
                self._write([view[start : start + CHUNK_BYTES]])

    def try_send(self, number: int, code: int, body: Any) -> bool:
        """Write a packet immediately; False if it is long or another one is pending."""
        if len(body) > CHUNK_BYTES or not self._writable.is_set() or self._sending.locked():
            return False
        self._write([HEADER.pack(len(body), number, code), body])
        return True

    def _write(self, parts: Sequence[Any]) -> None:
        if self.closed.done() or self.transport.is_closing():
            raise ConnectionResetError("the connection was lost")
        self.transport.writelines([part for part in parts if len(part)])

    def abort(self, cause: Exception) -> None:
        """Abort the connection."""
        self.cause = self.cause or cause
        if self.transport is not None:
            self.transport.abort()

    def close(self) -> None:
        """Close the connection once everything is written."""
        if self.transport is not None:
            self.transport.close()


def _allocate_aligned(length: int) -> memoryview:
    """Allocate uninitialized memory in which a frame's arrays are aligned."""
    memory = np.empty(length + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory.data[start : start + length]
