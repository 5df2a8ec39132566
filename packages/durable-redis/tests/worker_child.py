"""A worker process for `test_worker.py`: orders that reserve stock, and are told to it by URL and namespace."""

import asyncio
import sys
from datetime import timedelta

import durable_redis
from durable_core import Run
from durable_core.worker import Worker
from durable_redis import LuaEffect

RESERVE = """
local left = tonumber(redis.call('HGET', KEYS[1], 'piano') or '0')
if left < 1 then return 'false' end
redis.call('HINCRBY', KEYS[1], 'piano', -1)
return 'true'
"""


async def slow(number: int) -> int:
    """Take long enough to be killed in."""
    await asyncio.sleep(0.01)
    return number


async def main(url: str, namespace: str) -> None:
    """Work until somebody kills the process."""
    async with durable_redis.open(url, namespace=namespace, lease=timedelta(seconds=1)) as durable:
        stock = durable.hash_key("stock")

        async def order(run: Run[LuaEffect]) -> bool:
            await run.step("checked", slow, int, 1)
            reserved = await run.transact("reserved", LuaEffect(RESERVE, [stock]), bool)
            await run.step("shipped", slow, int, 2)
            return reserved

        await Worker(durable, limit=4, lapses_alone=50).run({"order": order})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
