"""The proxy, between real clients and real servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import psycopg
import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from durable_conformance import servers
from durable_conformance.proxy import Proxy
from durable_conformance.servers import Resp
from durable_conformance.servers._server import wait_until

LONG = timedelta(minutes=10)
MOMENT = 0.2  # seconds, after which a client gives up that shall be seen to wait


@pytest.fixture(scope="module")
def server() -> Iterator[servers.RedisServer]:
    with servers.redis(appendfsync="no") as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[servers.PostgresServer]:
    with servers.postgres(settings={"fsync": "off"}) as server:
        yield server


@pytest.fixture
def proxy(server: servers.RedisServer) -> Iterator[Proxy]:
    server.call("FLUSHALL")
    with Proxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Resp]:
    """A connection that never tries again."""
    with Resp(proxy.url) as client:
        yield client


@pytest.fixture
def impatient(proxy: Proxy) -> Iterator[Resp]:
    """A connection that gives up soon, for tests in which no answer comes."""
    with Resp(proxy.url, MOMENT) as client:
        yield client


def proxy_answers(proxy: Proxy) -> bool:
    with Resp(proxy.url) as connection:
        return connection.call("PING") == b"PONG"


def test_it_carries_and_counts_round_trips(proxy: Proxy, client: Resp, server: servers.RedisServer) -> None:
    """What goes through arrives, and each request with its answer is one round trip."""
    before = proxy.round_trips
    client.call("SET", "k", "v" * 200_000)

    assert client.call("GET", "k") == b"v" * 200_000
    assert proxy.round_trips == before + 2
    assert server.call("STRLEN", "k") == 200_000


def test_a_pipeline_is_one_round_trip(proxy: Proxy) -> None:
    """What a client sends without waiting for answers is one request."""
    with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
        raw.sendall(b"INCR k\r\n" * 10)
        answers = raw.makefile("rb")
        assert [answers.readline() for _ in range(10)][-1] == b":10\r\n"
        answers.close()

    assert proxy.round_trips == 1


def test_cut_ends_connections_and_serves_new_ones(proxy: Proxy, client: Resp) -> None:
    """A cut is seen by whoever is connected, and by nobody who comes later."""
    assert proxy.connections == 1
    proxy.cut()

    with pytest.raises(ConnectionError):
        client.call("PING")
    with Resp(proxy.url) as another:
        assert another.call("PING") == b"PONG"


def test_a_lost_reply_is_of_a_request_that_was_done(proxy: Proxy, client: Resp, server: servers.RedisServer) -> None:
    """The server has done it, the client has only lost its connection, and the fault says that it struck."""
    fault = proxy.lose_reply(b"INCR")
    assert fault.struck is False

    with pytest.raises(ConnectionError):
        client.call("INCR", "k")

    fault.wait()
    assert server.call("GET", "k") == b"1"
    assert proxy_answers(proxy)


def test_a_lost_request_was_not_done(proxy: Proxy, client: Resp, server: servers.RedisServer) -> None:
    """The server never saw it, and the client cannot tell the difference."""
    fault = proxy.lose_request(b"INCR")

    with pytest.raises(ConnectionError):
        client.call("INCR", "k")

    assert fault.struck
    assert server.call("GET", "k") is None


def test_the_nth_match_is_hit_and_no_other(proxy: Proxy, client: Resp, server: servers.RedisServer) -> None:
    """Requests without the pattern are not counted, and one that has it twice counts once."""
    fault = proxy.lose_reply(b"victim", nth=2)
    client.call("MGET", "victim", "victim")
    client.call("SET", "bystander", "1")

    with pytest.raises(ConnectionError):
        client.call("SET", "victim", "1")

    assert fault.struck
    assert server.call("MGET", "victim", "bystander") == [b"1", b"1"]


def test_closing_ends_what_is_going_on(server: servers.RedisServer) -> None:
    """A proxy can be closed at any moment: frozen, with connections old and new, and twice."""
    with Proxy(server.url) as proxy, Resp(proxy.url) as client:
        proxy.freeze()
        newcomers = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(5)]
        proxy.close()
        proxy.close()

        with pytest.raises(ConnectionError):
            client.call("PING")
        for newcomer in newcomers:
            newcomer.close()


def test_a_fault_that_did_not_strike_says_so(proxy: Proxy, client: Resp) -> None:
    """Waiting for a fault that nothing matches is an error, so no test passes on a fault that never was."""
    fault = proxy.lose_reply(b"nobody says this")
    client.call("PING")

    with pytest.raises(TimeoutError, match="nobody says this"):
        fault.wait(timedelta(0))


def test_a_lost_reply_may_leave_the_client_waiting(proxy: Proxy, impatient: Resp, server: servers.RedisServer) -> None:
    """Without a cut the connection stays open and nothing comes."""
    fault = proxy.lose_reply(b"INCR", cut=False)

    with pytest.raises(TimeoutError):
        impatient.call("INCR", "k")

    fault.wait()
    assert server.call("GET", "k") == b"1"


def test_a_lost_request_may_leave_the_client_waiting(proxy: Proxy, impatient: Resp, server: servers.RedisServer) -> None:
    """Without a cut the connection stays open, nothing comes, and nothing was done."""
    fault = proxy.lose_request(b"INCR", cut=False)

    with pytest.raises(TimeoutError):
        impatient.call("INCR", "k")

    fault.wait()
    assert server.call("GET", "k") is None


def test_a_pattern_may_arrive_in_pieces(proxy: Proxy, server: servers.RedisServer) -> None:
    """A request is one request however many packets it comes in."""
    fault = proxy.lose_reply(b"needle")
    with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (b"*3\r\n$3\r\nSET\r\n$6\r\nnee", b"d", b"le\r\n$1\r\n1\r\n"):
            raw.sendall(piece)
        fault.wait()
        with suppress(ConnectionResetError):
            assert raw.recv(100) == b""

    assert server.call("GET", "needle") == b"1"


def test_replies_can_be_delayed(proxy: Proxy, impatient: Resp, server: servers.RedisServer) -> None:
    """A delayed reply is one of a request that was done at once; without a delay all is as before."""
    proxy.delay(replies=LONG)
    with pytest.raises(TimeoutError):
        impatient.call("INCR", "k")
    wait_until(lambda: server.call("GET", "k") == b"1", "a request that is carried at once")

    proxy.delay()

    assert proxy_answers(proxy)


def test_requests_can_be_delayed(proxy: Proxy, impatient: Resp, server: servers.RedisServer) -> None:
    """A delayed request is not done yet."""
    proxy.delay(requests=LONG)

    with pytest.raises(TimeoutError):
        impatient.call("INCR", "k")

    assert server.call("GET", "k") is None


def test_a_short_delay_only_takes_time(proxy: Proxy, client: Resp) -> None:
    """Order and content stay."""
    proxy.delay(requests=timedelta(milliseconds=5), replies=timedelta(milliseconds=5))

    assert [client.call("INCR", "k") for _ in range(5)] == [1, 2, 3, 4, 5]


def test_a_frozen_proxy_keeps_connections_and_carries_on_when_thawed(proxy: Proxy, server: servers.RedisServer) -> None:
    """Half open: the request waits, nobody is told, and after the thaw all of it arrives."""
    replies: list[object] = []
    with Resp(proxy.url) as client:
        proxy.freeze()
        caller = threading.Thread(target=lambda: replies.append(client.call("INCR", "k")))
        caller.start()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=MOMENT) as newcomer:
            newcomer.sendall(b"PING\r\n")
            with pytest.raises(TimeoutError):
                newcomer.recv(100)
        assert caller.is_alive()
        assert server.call("GET", "k") is None

        proxy.thaw()
        caller.join()

    assert replies == [1]


def test_refuse_is_for_new_connections_only(proxy: Proxy, client: Resp) -> None:
    """Whoever is connected stays so; others are refused until it accepts again, on the same port."""
    proxy.refuse()
    assert client.call("PING") == b"PONG"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port))

    proxy.accept()

    socket.create_connection(("127.0.0.1", proxy.port)).close()


def test_a_server_that_is_down_is_a_cut() -> None:
    """Where nobody listens behind it, a client is cut off rather than left to wait."""
    with Proxy(f"redis://127.0.0.1:{servers.free_port()}") as before_nothing:
        with pytest.raises(ConnectionError), Resp(before_nothing.url) as client:
            client.call("PING")


def test_the_url_is_the_servers_with_another_port() -> None:
    """User, password, path and query stay."""
    with Proxy("postgresql://me:secret@db.example:5433/app?sslmode=disable") as proxy:
        assert proxy.url == f"postgresql://me:secret@127.0.0.1:{proxy.port}/app?sslmode=disable"


@pytest.mark.parametrize("url", ["nothing", "unheard-of://127.0.0.1"])
def test_a_url_without_a_host_and_port_is_refused(url: str) -> None:
    """There must be something to forward to."""
    with pytest.raises(ValueError, match="which host and port"):
        Proxy(url)


def test_nth_counts_from_one(proxy: Proxy) -> None:
    """The zeroth request never comes."""
    with pytest.raises(ValueError, match="counts from 1"):
        proxy.lose_reply(nth=0)


async def test_it_serves_asynchronous_clients(proxy: Proxy, server: servers.RedisServer) -> None:
    """The proxy has a loop of its own, so a test's loop may wait for it."""
    never = Retry(NoBackoff(), 0)
    async with redis.asyncio.Redis(port=proxy.port, retry=never) as client:
        fault = proxy.lose_reply(b"INCR", nth=2)
        assert await client.incr("k") == 1
        with pytest.raises(redis.ConnectionError):
            await client.incr("k")

    assert fault.struck
    assert server.call("GET", "k") == b"2"


def test_a_commit_whose_reply_is_lost_was_made(postgres: servers.PostgresServer) -> None:
    """Postgres has committed; the client has an error and no answer."""
    with servers.fresh_database(postgres) as url, Proxy(url) as proxy:
        with psycopg.connect(url) as direct:
            direct.execute("CREATE TABLE t (n int)")
        connection = psycopg.connect(proxy.url)
        connection.execute("INSERT INTO t VALUES (1)")
        fault = proxy.lose_reply(b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
        connection.close()

        assert fault.struck
        with psycopg.connect(url) as direct:
            assert direct.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_a_commit_that_is_lost_was_not_made(postgres: servers.PostgresServer) -> None:
    """Postgres has rolled back; the client has the same error as above."""
    with servers.fresh_database(postgres) as url, Proxy(url) as proxy:
        with psycopg.connect(url) as direct:
            direct.execute("CREATE TABLE t (n int)")
        connection = psycopg.connect(proxy.url)
        connection.execute("INSERT INTO t VALUES (1)")
        fault = proxy.lose_request(b"COMMIT")
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
        connection.close()

        assert fault.struck
        with psycopg.connect(url) as direct:
            assert direct.execute("SELECT n FROM t").fetchall() == []
