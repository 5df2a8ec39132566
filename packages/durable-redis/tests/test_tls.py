# pyright: reportUnknownMemberType=false
# redis-py leaves its **kwargs untyped.
"""A server that is reached through TLS: what stands before it here takes the encryption off."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import trustme
from redis.exceptions import RedisError

import durable_redis
from durable_conformance.servers import Address

HOUR = timedelta(hours=1)


@pytest.fixture
async def encrypted(shared_redis: Address, tmp_path: Path) -> AsyncIterator[str]:
    """Give a URL under which the server is reached through TLS, with an authority of its own."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    carrying = set[asyncio.Task[None]]()

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(65_536):
            sink.write(chunk)
            await sink.drain()
        sink.close()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", shared_redis.port)
        carrying.update({asyncio.create_task(carry(reader, outer)), asyncio.create_task(carry(inner, writer))})

    async with await asyncio.start_server(served, "localhost", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"rediss://localhost:{port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}"
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)


async def test_a_workflow_through_tls(encrypted: str, namespace: str) -> None:
    """Each connection is encrypted: the one that calls share, the one that waits, and those of the pool. [DUR-BEGIN]"""
    async with durable_redis.open(encrypted, namespace=namespace) as durable:
        waiting = asyncio.create_task(durable.begin(HOUR, HOUR))
        await durable.arrive("w", "input", "x" * 1_000_000)
        (turn,) = await waiting
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(durable.checkpointer.record(turn.holder, f"k{number}", number))
        assert len(await durable.checkpointer.load("w")) == 51
        await durable.finish(turn, "done")


async def test_a_server_that_nobody_vouches_for_is_refused(encrypted: str, namespace: str) -> None:
    """The certificate is checked, as redis-py does by default."""
    with pytest.raises((RedisError, OSError), match=r"(?i)certificate"):
        async with durable_redis.open(encrypted.partition("?")[0], namespace=namespace):
            pass
