"""Listening sockets."""

import socket


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
