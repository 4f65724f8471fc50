"""Listening sockets."""

import socket


def listening(address: str) -> list[socket.socket]:
    """Open sockets for all addresses that `address` resolves to."""
    name, port = address.rsplit(":", 1)
    found: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in dict.fromkeys(
            socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_STREAM)
        ):
            one = socket.socket(family, kind, protocol)
            found.append(one)
            if hasattr(socket, "SO_REUSEADDR"):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(place)
            one.listen(128)
            one.setblocking(False)
    except OSError as cause:
        for one in found:
            one.close()
        raise OSError(
            f"{address} cannot be listened on ({cause.strerror}); is another agent there, or is it "
            f"no address of this machine? --listen names another"
        ) from None
    return found
