"""Ports of the loopback interface that a server can be given."""

from __future__ import annotations

import secrets
import socket

# Below the range that systems take a client's own port from (32768 up), so that no connection occupies the port of a server that
# is down for a moment; and low enough for a cluster's bus, 10,000 above.
_LOWEST, _HIGHEST = 15_000, 22_500
_BUS = 10_000
_TRIES = 1_000


def free_ports(count: int) -> list[int]:
    """Gives distinct ports of 127.0.0.1 on which nothing listens now, nor on the one 10,000 above each.

    Another process may take one before it is used: whoever starts a server must be ready to try again.

    Raises:
        OSError: no free port was found.
    """
    found: list[int] = []
    for _ in range(_TRIES):
        if len(found) == count:
            return found
        port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
        if port not in found and _free(port) and _free(port + _BUS):
            found.append(port)
    raise OSError(f"no {count} free ports between {_LOWEST} and {_HIGHEST} after {_TRIES} tries")


def free_port() -> int:
    """Gives one port of 127.0.0.1 on which nothing listens now."""
    return free_ports(1)[0]


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
