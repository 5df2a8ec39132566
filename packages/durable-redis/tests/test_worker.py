"""Workers on Redis, killed at random, and their server with them: every order reserves once, and the books balance."""

# pyright: reportUnknownMemberType=false
# redis-py leaves its **kwargs untyped.
import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest
from redis.exceptions import RedisError

import durable_redis
from durable_conformance.servers import redis
from durable_core.client import start
from durable_core.contract import Finished

CHILD = Path(__file__).with_name("worker_child.py")


@pytest.mark.parametrize("seed", [1])
async def test_the_books_balance_under_kills_of_workers_and_of_the_server(namespace: str, seed: int) -> None:
    """Thirty orders, twenty pianos, two workers killed again and again, one SIGKILL of the server (AOF, everysec)."""
    chance, orders = random.Random(seed), [f"order/{number}" for number in range(30)]
    with redis("redis", appendfsync="everysec") as server:

        def worker() -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, str(CHILD), server.url, namespace], stderr=subprocess.DEVNULL)

        workers = [worker(), worker()]
        try:
            async with durable_redis.open(server.url, namespace=namespace) as durable:
                server.call("HSET", durable.hash_key("stock"), "piano", 20)
                for workflow in orders:
                    await start(durable, workflow, 1)
                for kill in range(6):
                    await asyncio.sleep(0.4 + chance.random() * 0.4)
                    victim = chance.randrange(2)
                    workers[victim].kill()
                    workers[victim].wait()
                    if kill == 3:
                        await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.start)
                    workers[victim] = worker()
                ended = list[object]()
                for workflow in orders:
                    while (outcome := await _result(durable, workflow)) is None:
                        await durable.watch(workflow, durable.scheduler.lease)
                    ended.append(outcome)
                assert ended.count(Finished(True)) == 20
                assert ended.count(Finished(False)) == 10
                assert server.call("HGET", durable.hash_key("stock"), "piano") == b"0"
        finally:
            for process in workers:
                process.kill()
                process.wait()


async def _result(durable: durable_redis.RedisDurable, workflow: str) -> object:
    try:
        return await durable.result(workflow)
    except (RedisError, OSError):
        return None
