"""Opening the file: what is refused, and how the connection is set up."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from durable_core.errors import Misconfigured, SchemaMismatch
from durable_sqlite import schema, sql
from durable_sqlite.effect import GuardedConnection

T = TypeVar("T")

_OLDEST = (3, 37, 0)  # STRICT tables
_DAY = 86_400.0  # SQLite counts its timeout in 32 bits of milliseconds
_NETWORK_NAMES = """
9p afs ceph cifs coda davfs drvfs fuse.davfs fuse.glusterfs fuse.grpcfuse fuse.gvfsd-fuse fuse.rclone fuse.s3fs fuse.sshfs
glusterfs gpfs lustre ncpfs nfs nfs4 prl_fs smb3 smbfs vboxsf virtiofs
"""
_NETWORK = frozenset(_NETWORK_NAMES.split())


def open_file(path: str, synchronous: str, busy_timeout: timedelta, create: bool) -> sqlite3.Connection:
    """Open the database in WAL mode, with its schema. Whatever is wrong with the file is SQLite's own error."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise Misconfigured(f"durable-sqlite needs SQLite 3.37 or newer, and Python has {sqlite3.sqlite_version} here")
    refuse_network(path, _mounts())
    _refuse_orphan(path)
    try:
        connection = GuardedConnection(
            _uri(path, create), timeout=min(busy_timeout.total_seconds(), _DAY), isolation_level=None, uri=True
        )
        connection.guarded()
    except sqlite3.OperationalError as error:
        error.add_note(f"opening {path!r}")
        raise
    try:
        _set_up(connection, path, synchronous, busy_timeout, create)
    except sqlite3.Error as error:
        connection.close()
        error.add_note(f"opening {path!r}")
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_network(path: str, mounts: str) -> None:
    """Refuse a file system whose locks and shared memory do not reach the other machine. `mounts` is /proc/self/mountinfo."""
    found = file_system(os.path.realpath(path), mounts)
    if found in _NETWORK:
        raise Misconfigured(
            f"{path!r} is on a {found} file system, where SQLite's write-ahead log corrupts: use a local disk, or another store"
        )


def file_system(path: str, mounts: str) -> str | None:
    """Give the type of the file system that holds a path, or `None` where the mounts do not say."""
    longest, found = -1, None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = _unescaped(fields[4])
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= longest:
            longest, found = len(point), right.split(" ")[0]
    return found


def _unescaped(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


def _mounts() -> str:
    if not sys.platform.startswith("linux"):
        return ""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _refuse_orphan(path: str) -> None:
    """Refuse a log without its database: SQLite would delete it, and with it what was committed. The log is looked at first."""
    log = path + "-wal"
    try:
        orphan = os.path.getsize(log) > 0 and (not os.path.exists(path) or os.path.getsize(path) == 0)
    except OSError:
        return
    if orphan:
        raise sqlite3.DatabaseError(f"{log!r} holds a write-ahead log and {path!r} is missing or empty: restore both")


def _uri(path: str, create: bool) -> str:
    from urllib.parse import quote  # only whoever opens a file pays for its import

    return f"file:{quote(os.path.abspath(path))}?mode={'rwc' if create else 'rw'}"


def _set_up(connection: sqlite3.Connection, path: str, synchronous: str, busy_timeout: timedelta, create: bool) -> None:
    deadline = time.monotonic() + busy_timeout.total_seconds()
    connection.execute(sql.SYNCHRONOUS[synchronous])
    connection.execute(sql.CACHE_SIZE)
    if create:
        mode: str = _unless_busy(deadline, lambda: connection.execute(sql.JOURNAL_MODE).fetchall()[0][0])
        if mode != "wal":
            raise Misconfigured(f"{path!r} cannot use SQLite's write-ahead log: its journal mode stays {mode!r}")
        _unless_busy(deadline, lambda: schema.create(connection, path))
    elif not _unless_busy(deadline, lambda: schema.verify(connection, path)):
        raise SchemaMismatch(f"{path!r} has no schema yet: apply `python -m durable_sqlite schema`, or open with create=True")
    else:
        _unless_busy(deadline, lambda: connection.execute(sql.JOURNAL_MODE).fetchall())


def _unless_busy(deadline: float, attempt: Callable[[], T]) -> T:
    """Try until the deadline: in a few places SQLite says busy at once, whatever the busy timeout."""
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(0.005)
