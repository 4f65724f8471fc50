"""A TCP proxy that injects the faults of a network into connections."""

import asyncio
import contextlib

CHUNK_BYTES = 2**14
DAMAGE_FAULTS, DAMAGED_CHUNKS = ("truncate", "corrupt", "duplicate", "reorder"), 5


class Proxy:
    """Forwards connections to `port`; `fault` is the current fault, if any.

    `links` carry the requests and the responses, if they take time.
    """

    def __init__(self, port, links=None):
        self.port, self.fault, self.links = port, "", links
        self.fault_count = 0  # chunks or connections with a fault
        self.on_response = None  # called with the response bytes since it was set
        self._response_bytes, self._unstalled, self._writers = 0, asyncio.Event(), set()
        self._unstalled.set()

    async def start(self, port):
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def close(self):
        """Stop listening, and abort all connections."""
        self._server.close()
        self.abort_connections()

    def abort_connections(self):
        """End all connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    def set_fault(self, fault):
        """Start a fault; "" ends it."""
        self.fault, self.chunks_left = fault, DAMAGED_CHUNKS
        (self._unstalled.clear if fault == "stall" else self._unstalled.set)()
        if fault == "cut":
            self.fault_count += len(self._writers)
            self.abort_connections()

    def watch_responses(self, on_response):
        """Call on_answer(bytes so far) with every response chunk from now on."""
        self._response_bytes, self.on_response = 0, on_response

    async def _accept(self, reader, writer):
        if self.fault == "cut":
            self.fault_count += 1
            writer.transport.abort()
            return
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, target_writer}
        self._writers |= pair
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(
                self._forward(reader, target_writer, False),
                self._forward(target_reader, writer, True),
            )
        self._writers -= pair
        for end in pair:
            end.transport.abort()

    async def _forward(self, reader, writer, is_response):
        if self.links:
            return await self.links[is_response].carry(reader, writer)
        while chunk := await reader.read(CHUNK_BYTES):
            if is_response and self.on_response:
                self._response_bytes += len(chunk)
                self.on_response(self._response_bytes)
            for piece in await self._apply_fault(chunk, writer):
                writer.write(piece)
            await writer.drain()
        writer.write_eof()

    async def _apply_fault(self, chunk, writer):
        """Return the chunks that replace a chunk."""
        if self.fault == "stall":
            self.fault_count += 1
            await self._unstalled.wait()
        elif self.fault == "delay":
            self.fault_count += 1
            await asyncio.sleep(0.02)
        elif self.fault in DAMAGE_FAULTS and self.chunks_left and len(chunk) > 100:
            self.chunks_left -= 1
            self.fault_count += 1
            return self._damage_chunk(chunk, writer)
        return [chunk]

    def _damage_chunk(self, chunk, writer):
        half = len(chunk) // 2
        if self.fault == "truncate":
            writer.write(chunk[:half])
            writer.close()
            raise ConnectionResetError("cut in the middle of a chunk")
        if self.fault == "corrupt":
            return [chunk[:half], bytes([chunk[half] ^ 1]), chunk[half + 1 :]]
        return {"duplicate": [chunk, chunk], "reorder": [chunk[half:], chunk[:half]]}[self.fault]
