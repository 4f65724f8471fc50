"""Keep-alive probes, which notice that the other end of a silent connection is lost."""

import socket
from typing import Any

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
