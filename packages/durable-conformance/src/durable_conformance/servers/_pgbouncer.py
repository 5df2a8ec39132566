"""A PgBouncer of one's own, in front of a Postgres."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from durable_conformance.servers._find import Binary, NoServer, find
from durable_conformance.servers._pgwire import QueryError, query
from durable_conformance.servers._postgres import PostgresServer
from durable_conformance.servers._server import Address, Server, start_on_free_port
from durable_conformance.servers._units import Process, own_keeper, servers_account

PoolMode = Literal["session", "transaction", "statement"]


class PgBouncerServer(Server):
    """A PgBouncer: it has every database of the Postgres behind it, under the same name, without a password."""

    def __init__(self, url: str, program: Binary, unit: Process, settings: Mapping[str, str]) -> None:
        super().__init__("pgbouncer", url, program.origin, unit, settings)
        self._said = program.version

    def _version(self) -> str:
        return self._said

    def _answers(self) -> bool:
        try:
            query(self.url, "SELECT 1", seconds=1)
        except (OSError, QueryError):
            return False
        return self.running


@contextmanager
def pgbouncer(
    behind: Address | PostgresServer, *, pool_mode: PoolMode = "transaction", settings: Mapping[str, str] | None = None
) -> Generator[PgBouncerServer]:
    """Gives a PgBouncer in front of a Postgres, and ends it. Its URL is that of the Postgres, with another port.

    Args:
        behind: the Postgres.
        pool_mode: when a connection of the server goes to the next client.
        settings: more of the section `[pgbouncer]`. They win over the arguments.

    Raises:
        NoServer: there is no PgBouncer on this machine. It is not looked for in wheels or images.
        DidNotStart: it was found and does not start.
    """
    program, account = find("pgbouncer"), servers_account()
    if not isinstance(program, Binary):
        raise NoServer("pgbouncer", (program.origin,))

    def make(port: int) -> PgBouncerServer:
        options = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": pool_mode,
            "max_client_conn": "200",
            "ignore_startup_parameters": "extra_float_digits",
            **(settings or {}),
        }
        home = own_keeper().make_folder("pgbouncer")
        file = _write(home / "pgbouncer.ini", behind.url, options)
        if account is not None:
            os.chown(file, account.uid, account.gid)
        unit = Process(own_keeper(), [str(program.path), str(file)], home, {}, account, orderly=signal.SIGINT)
        parts = urlsplit(behind.url)
        user = f"{parts.username or 'postgres'}@"
        return PgBouncerServer(parts._replace(netloc=f"{user}127.0.0.1:{port}").geturl(), program, unit, settings or {})

    with start_on_free_port(make) as server:
        yield server


def _write(file: Path, url: str, options: Mapping[str, str]) -> Path:
    """Writes the configuration, for its owner only: there may be a password in it."""
    parts = urlsplit(url)
    login = {
        "host": parts.hostname or "127.0.0.1",
        "port": str(parts.port or 5432),
        "user": unquote(parts.username or "postgres"),
    }
    if parts.password:
        login["password"] = unquote(parts.password)
    target = " ".join(f"{name}='{value.replace(chr(39), chr(39) * 2)}'" for name, value in login.items())
    lines = ["[databases]", f"* = {target}", "[pgbouncer]", *(f"{name} = {value}" for name, value in options.items())]
    file.touch(mode=0o600)
    file.write_text("\n".join(lines) + "\n")
    return file
