"""Listening sockets, and probes which notice that the other end of a silent connection is lost."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

from .audit import Audit

RESOURCE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def open_listening_sockets(address: str) -> list[socket.socket]:
    """Open sockets for all addresses that `address` resolves to."""
    name, port = address.rsplit(":", 1)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, socket_address in dict.fromkeys(
            socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_STREAM)
        ):
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            if hasattr(socket, "SO_REUSEADDR"):
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(socket_address)
            listener.listen(128)
            listener.setblocking(False)
    except OSError as cause:
        for listener in sockets:
            listener.close()
        raise OSError(
            f"{address} cannot be listened on ({cause.strerror}); is another agent there, or is it "
            f"no address of this machine? --listen names another"
        ) from None
    return sockets


async def accept_connections(
    listener: socket.socket, audit: Audit, on_connection: Callable[[socket.socket, Any], None]
) -> None:
    """Pass every new connection with its address to `on_connection`."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, address = await loop.sock_accept(listener)
        except OSError as cause:  # no stranger's error may stop the site
            audit.record_event("a connection", f"could not be accepted: {cause.strerror}")
            await asyncio.sleep(1.0 if cause.errno in RESOURCE_ERRORS else 0.01)
            continue
        on_connection(connection, address)
        await asyncio.sleep(0)  # handle a flood one by one


async def peek_byte(connection: socket.socket) -> bytes:
    """Return the first byte without consuming it; empty if the other end has closed."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


KEEPALIVE_IDLE = 10  # seconds of silence after which the system probes the other end


def enable_keepalive(connection: Any, seconds: float) -> None:
    """Enable keep-alive probes, if the system has them."""
    options = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE,
        "TCP_KEEPINTVL": max(1, int(seconds) // 3),
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": int(1000 * (KEEPALIVE_IDLE + seconds)),
    }
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
