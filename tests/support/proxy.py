"""A TCP proxy that can do to a connection whatever a network can do to it."""

import asyncio
import contextlib

CHUNK = 2**14
DAMAGE, SEVERAL = ("truncate", "corrupt", "duplicate", "reorder"), 5  # to so many chunks


class Proxy:
    """Carries connections to `port`; `fault` says what happens to them now, if anything.

    `lines`: what carries requests and what carries answers, where that takes time.
    """

    def __init__(self, port, lines=None):
        self.port, self.fault, self.lines = port, "", lines
        self.hits = 0  # chunks or connections that a fault has met
        self.on_answer = None  # called with the bytes that have come back since it was set
        self._back, self._clear, self._writers, self._held = 0, asyncio.Event(), set(), {}
        self._clear.set()

    async def start(self, port):
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def close(self):
        """No more connections, and none of those there are."""
        self._server.close()
        self.sever()

    def sever(self):
        """End all connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    def disturb(self, fault):
        """From now on; "" ends it."""
        self.fault, self.left = fault, SEVERAL
        (self._clear.clear if fault == "stall" else self._clear.set)()
        if fault == "cut":
            self.hits += len(self._writers)
            self.sever()

    def watch(self, on_answer):
        """Call on_answer(bytes so far) with every chunk that comes back from now on."""
        self._back, self.on_answer = 0, on_answer

    async def _accept(self, reader, writer):
        if self.fault == "cut":
            self.hits += 1
            writer.transport.abort()
            return
        try:
            inside, outside = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, outside}
        self._writers |= pair
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(
                self._carry(reader, outside, False), self._carry(inside, writer, True)
            )
        self._writers -= pair
        for one in pair:
            one.transport.abort()

    async def _carry(self, reader, writer, back):
        if self.lines:
            return await self.lines[back].carry(reader, writer)
        while chunk := await reader.read(CHUNK):
            if back and self.on_answer:
                self._back += len(chunk)
                self.on_answer(self._back)
            for piece in await self._passed(chunk, writer):
                writer.write(piece)
            await writer.drain()
        writer.write_eof()

    async def _passed(self, chunk, writer):
        """What becomes of a chunk."""
        if self.fault == "stall":
            self.hits += 1
            await self._clear.wait()
        elif self.fault == "delay":
            self.hits += 1
            await asyncio.sleep(0.02)
        elif self.fault in DAMAGE and self.left and len(chunk) > 100:
            self.left -= 1
            self.hits += 1
            return self._damaged(chunk, writer)
        return [chunk]

    def _damaged(self, chunk, writer):
        half = len(chunk) // 2
        if self.fault == "truncate":
            writer.write(chunk[:half])
            writer.close()
            raise ConnectionResetError("cut in the middle of a chunk")
        if self.fault == "corrupt":
            return [chunk[:half], bytes([chunk[half] ^ 1]), chunk[half + 1 :]]
        return {"duplicate": [chunk, chunk], "reorder": [chunk[half:], chunk[:half]]}[self.fault]
