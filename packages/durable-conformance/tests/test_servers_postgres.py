"""A Postgres of one's own, and a PgBouncer before it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from durable_conformance import servers
from durable_conformance.servers import _pgwire
from durable_conformance.servers._postgres import make_postgres
from durable_conformance.servers._server import start_on_free_port, wait_until
from durable_conformance.servers._units import own_keeper
from durable_conformance.servers.fixtures import or_say_so

ours = pytest.mark.skipif(
    os.environ.get("DURABLE_TEST_SERVERS") == "docker", reason="looks at processes and files of this machine, not of a container"
)


@pytest.fixture(scope="module")
def steady() -> Iterator[servers.PostgresServer]:
    """For tests that leave a server as it was."""
    with servers.postgres() as server:
        yield server


@pytest.fixture(scope="module")
def victim() -> Iterator[servers.PostgresServer]:
    """For tests that kill it, and start it again."""
    with servers.postgres() as server:
        yield server


def _one(server: servers.PostgresServer, sql: str) -> str | None:
    return server.query(sql)[0][0]


def test_it_is_safe_unless_asked_otherwise(steady: servers.PostgresServer) -> None:
    """What a commit promises holds: nothing that flushing depends on is turned off."""
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        assert _one(steady, f"SHOW {name}") == "on"


@ours
def test_settings_and_environment_are_taken() -> None:
    """Settings go to the server; so do variables such as LD_PRELOAD, and ours do not."""
    with servers.postgres(settings={"fsync": "off", "max_connections": "17"}, env={"FOR_THE_SERVER": "1"}) as server:
        assert (_one(server, "SHOW fsync"), _one(server, "SHOW max_connections")) == ("off", "17")
        assert server.settings == {"fsync": "off", "max_connections": "17"}
        rows = server.query("CREATE TABLE e (line text); COPY e FROM PROGRAM 'env'; SELECT line FROM e")

    assert ["FOR_THE_SERVER=1"] in rows
    assert not [line for (line,) in rows if str(line).startswith("PYTEST_CURRENT_TEST=")]


def test_it_listens_on_the_loopback_only(steady: servers.PostgresServer) -> None:
    """Nobody but this machine reaches it."""
    assert _one(steady, "SHOW listen_addresses") == "127.0.0.1"
    assert urlsplit(steady.url).hostname == "127.0.0.1"


@ours
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks /proc who runs a process")
def test_it_never_runs_as_root(steady: servers.PostgresServer) -> None:
    """It belongs to nobody when the tests run as root, and to the user who tests otherwise."""
    owner = os.stat(f"/proc/{steady.pids[0]}").st_uid

    assert owner != 0
    assert os.getuid() in (0, owner)


def test_what_was_committed_survives_a_kill(victim: servers.PostgresServer) -> None:
    """Killed with all its children and started again, it has what it had, at the same URL."""
    url = victim.url
    victim.query("CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
    before = victim.pids
    victim.kill()
    assert not victim.running
    assert victim.pids == ()
    with pytest.raises(ConnectionRefusedError):
        victim.query("SELECT 1")

    victim.start()

    assert _one(victim, "SELECT n FROM kept") == "1"
    assert victim.url == url
    assert not set(before) & set(victim.pids)


@ours
def test_a_restart_is_orderly(victim: servers.PostgresServer) -> None:
    """After `restart` nothing has to be recovered."""
    log = Path(str(_one(victim, "SHOW data_directory"))).with_name("log")
    recoveries = log.read_text().count("automatic recovery")

    victim.restart()

    assert _one(victim, "SELECT 1") == "1"
    assert log.read_text().count("automatic recovery") == recoveries


def test_a_paused_server_hangs(steady: servers.PostgresServer) -> None:
    """While it is paused it takes connections and answers none; afterwards it goes on."""
    with steady.paused():
        with pytest.raises(TimeoutError):
            _pgwire.query(steady.url, "SELECT 1", seconds=0.2)

    assert _one(steady, "SELECT 1") == "1"


def test_a_paused_server_can_be_killed(victim: servers.PostgresServer) -> None:
    """SIGSTOP does not save it."""
    victim.pause()
    victim.kill()
    assert not victim.running

    victim.start()


@ours
def test_its_data_go_with_it_from_wherever_they_were_put() -> None:
    """Nothing of a server stays: no process, and nothing in the folder that was asked for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # as root we run it as somebody else
        with servers.postgres(folder=folder) as server:
            assert Path(str(_one(server, "SHOW data_directory"))).is_relative_to(folder)

        assert server.pids == ()
        assert list(folder.iterdir()) == []


@ours
def test_a_wrong_setting_says_what_the_server_said() -> None:
    """A server that does not start is an error with its log, not a wait."""
    with pytest.raises(servers.DidNotStart, match="no_such_setting"):
        with servers.postgres(settings={"no_such_setting": "1"}):
            pass


def test_a_taken_port_is_exchanged_for_another(steady: servers.PostgresServer) -> None:
    """Where another server has the port, the start goes on to another one."""
    ports = [steady.port, servers.free_port()]
    wanted = ports[1]

    def make(_: int) -> servers.PostgresServer:
        return make_postgres(ports.pop(0), own_keeper(), servers.find("postgres"), {}, None, {})

    with start_on_free_port(make) as other:
        assert other.port == wanted
        assert not set(other.pids) & set(steady.pids)


def test_a_fresh_database_is_empty_and_goes(steady: servers.PostgresServer) -> None:
    """Each has its own tables, and is dropped though somebody is still connected."""
    with servers.fresh_database(steady) as one, servers.fresh_database(steady) as other:
        _pgwire.query(one, "CREATE TABLE t (n int)")
        _pgwire.query(other, "CREATE TABLE t (n int)")
        lingering = _pgwire.PgWire(one)

    names = {row[0] for row in steady.query("SELECT datname FROM pg_database")}
    assert names == {"postgres", "template0", "template1"}
    with pytest.raises(ConnectionError):
        lingering.query("SELECT 1")
    lingering.close()


def test_pgbouncer_stands_before_it(steady: servers.PostgresServer) -> None:
    """Databases are reached through PgBouncer under the same names, in the mode that was asked for."""
    with servers.fresh_database(steady) as url, or_say_so(servers.pgbouncer(steady)) as bouncer:
        through = urlsplit(url)._replace(netloc=urlsplit(bouncer.url).netloc).geturl()
        _pgwire.query(through, "CREATE TABLE t (n int)")
        assert _pgwire.query(url, "SELECT * FROM t") == []

        with _pgwire.PgWire(through) as one, _pgwire.PgWire(through) as other:
            backends = {connection.query("SELECT pg_backend_pid()")[0][0] for connection in (one, other)}
        assert len(backends) == 1  # one after another they have the same connection: transaction mode

        bouncer.kill()
        bouncer.start()
        assert _pgwire.query(through, "SELECT 1") == [["1"]]


def test_passwords_are_known(victim: servers.PostgresServer) -> None:
    """A URL with a password opens a server that wants one by SCRAM, and a wrong one does not."""
    login = f"postgresql://postgres:{{}}@127.0.0.1:{victim.port}/postgres"
    right, wrong = login.format("it%27s%20%40%20secret"), login.format("wrong")
    rules = _one(victim, "SHOW hba_file")

    def demand(way: str) -> None:
        _pgwire.query(right, f"COPY (SELECT 'host all all 127.0.0.1/32 {way}') TO '{rules}'; SELECT pg_reload_conf()")

    def refused(url: str) -> bool:
        try:
            _pgwire.query(url, "SELECT 1")
        except servers.QueryError as error:
            return error.sqlstate == "28P01"
        return False

    victim.query("ALTER USER postgres PASSWORD 'it''s @ secret'")
    demand("scram-sha-256")
    try:
        wait_until(lambda: refused(victim.url), "a server that wants a password")
        assert refused(wrong)
        assert _pgwire.query(right, "SELECT 2") == [["2"]]
    finally:
        demand("trust")
        wait_until(lambda: not refused(victim.url), "a server that wants none")
