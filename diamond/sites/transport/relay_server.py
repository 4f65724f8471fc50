"""Relay without keys as a process of its own (`diamond net relay`)."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..identity.roster import BadBundle
from .admission import AdmissionQueue
from .audit import Audit
from .relay import RelayHub, RelayLimits, RosterFolder
from .sockets import accept_connections, open_listening_sockets


class RelayServer:
    """Listening sockets of a relay; connections that have proved no key yet are few and brief."""

    def __init__(self, folder: Path, address: str | None, limits: RelayLimits, audit: Audit):
        files = RosterFolder(folder, audit)
        address = address or files.roster.relays.get(folder.resolve().name)
        if address is None:
            names = ", ".join(files.roster.relays) or "none"
            raise BadBundle(
                f"the roster has no relay of the name of the folder {folder} (relays: {names}); "
                f"give its address with --listen HOST:PORT"
            )
        self.address, self.audit = address, audit
        self.hub = RelayHub(files.ca, files.current, limits, audit)
        self._sockets = open_listening_sockets(address)
        self.port = self._sockets[0].getsockname()[1]
        self._queue, self._tasks = AdmissionQueue(), set()  # type: AdmissionQueue, set[Any]

    async def __aenter__(self) -> "RelayServer":
        for listener in self._sockets:
            self._start(accept_connections(listener, self.audit, self._on_connection))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.hub.close()
        for listener in self._sockets:
            listener.close()

    def _start(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_connection(self, connection: socket.socket, address: Any) -> None:
        task = self._start(self.hub.admit(connection, f"{address[0]}:{address[1]}"))
        number = self._queue.add(address[0], partial(_cancel, task))

        def release(_: object) -> None:
            self._queue.remove(number)
            if task.cancelled():
                connection.close()

        task.add_done_callback(release)


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()


async def run_relay(
    folder: Path, address: str | None, limits: RelayLimits, write_line: Callable[[str], None]
) -> None:
    """Run the relay with the signed roster in `folder` until it is interrupted."""
    async with RelayServer(folder, address, limits, Audit(write_line)) as server:
        write_line(f"the relay listens at {server.address}; it has no keys and reads no messages")
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
