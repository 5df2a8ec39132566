"""What each operation costs on Redis, and what a take costs however deep the queue is.

python -m conformance.benchmarks.redis_costs [--depths 1000,100000] [--flavour valkey]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from durable_conformance.servers import RedisServer, redis
from durable_core.contract import Turn
from durable_redis import LuaEffect, RedisDurable, RedisScheduler, RedisStreamScheduler, open

HOUR = timedelta(hours=1)
NOW = timedelta(0)
REPEATS = 200
TEXT = "0123456789"
RESERVE = "redis.call('HINCRBY', KEYS[1], 'piano', -1) return redis.call('HGET', KEYS[1], 'piano')"
OURS = frozenset({"info", "config|get", "client|setinfo", "hello", "eval", "evalsha", "script|load", "ping"})

# KEYS as the queue has them, then ARGV: kind, from, to, now in microseconds.
SEED_SET = """
for number = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local workflow, now = ARGV[1] .. '/' .. number, tonumber(ARGV[4])
  local score = string.format('%.0f', ARGV[1] == 'queued' and now - 1e9 + number or now + 36e8 + number)
  redis.call('ZADD', KEYS[1], score, workflow)
  if ARGV[1] == 'taken' then
    redis.call('HSET', KEYS[2], workflow, 'r' .. number .. '|1|0|0|' .. score .. '|')
    redis.call('HSET', KEYS[3], 'r' .. number, workflow)
  end
end
"""
SEED_STREAM = """
for number = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local workflow, now = ARGV[1] .. '/' .. number, tonumber(ARGV[4])
  local due = string.format('%.0f', now + 36e8 + number)
  if ARGV[1] == 'asleep' then
    redis.call('ZADD', KEYS[1], due, workflow)
  else
    local entry = redis.call('XADD', KEYS[5], '*', 'w', workflow)
    local receipt = ARGV[1] == 'taken' and 'r' .. number or ''
    redis.call('HSET', KEYS[2], workflow, receipt .. '|1|0|0|' .. string.format('%.0f', now) .. '|s' .. entry)
    if receipt ~= '' then
      redis.call('HSET', KEYS[3], receipt, workflow)
      redis.call('ZADD', KEYS[6], due, workflow)
    end
  end
end
if ARGV[1] == 'taken' then
  redis.pcall('XGROUP', 'CREATE', KEYS[5], 'durable', '0')
  redis.call('XREADGROUP', 'GROUP', 'durable', 'durable', 'COUNT', 1000, 'STREAMS', KEYS[5], '>')
end
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call costs: commands inside its script, microseconds in it, bytes of the log and both ways."""

    calls: float
    commands: float
    micros: float
    logged: float
    sent: float
    received: float


class Meter:
    """Reads a server's counters."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    def _read(self) -> tuple[float, ...]:
        stats = self._server.info("commandstats")
        said = {name.removeprefix("cmdstat_"): dict(part.split("=") for part in text.split(",")) for name, text in stats.items()}
        scripts = [said[name] for name in ("eval", "evalsha") if name in said]
        commands = sum(float(one["calls"]) for name, one in said.items() if name not in OURS)
        net = self._server.info("stats")
        return (
            sum(float(one["calls"]) for one in scripts),
            commands,
            sum(float(one["usec"]) for one in scripts),
            float(self._server.info("persistence")["aof_current_size"]),
            float(net["total_net_input_bytes"]),
            float(net["total_net_output_bytes"]),
        )

    async def cost(self, calls: Sequence[Callable[[], Awaitable[object]]]) -> Cost:
        """Give the mean of some calls."""
        before = self._read()
        for call in calls:
            await call()
        after, idle = self._read(), self._read()  # the second one costs what the first cost
        both = [last - first for last, first in zip(after, before, strict=True)]
        difference = [one - (last - first) for one, last, first in zip(both, idle, after, strict=True)]
        return Cost(*(one / len(calls) for one in difference))


async def operations(url: str, meter: Meter, *, stream: bool) -> dict[str, Cost]:
    """Measure each operation on values of ten characters."""
    async with open(url, namespace=f"costs{stream}", stream=stream) as durable:
        names = [f"w/{number}" for number in range(REPEATS)]
        await _once(durable)
        costs = {"start": await meter.cost([partial(durable.arrive, name, "input", TEXT) for name in names])}
        turns = list[Turn]()

        async def begin() -> None:
            turns.extend(await durable.begin(NOW, HOUR))

        costs["begin"] = await meter.cost([begin] * REPEATS)
        store, stock = durable.checkpointer, durable.hash_key("stock")
        effect = LuaEffect(RESERVE, [stock])
        costs["step"] = await meter.cost([partial(store.record, turn.holder, "step", TEXT) for turn in turns])
        costs["transact"] = await meter.cost([partial(store.transact, turn.holder, "e", effect) for turn in turns])
        costs["renew"] = await meter.cost([partial(durable.renew, turn) for turn in turns])
        costs["finish"] = await meter.cost([partial(durable.finish, turn, TEXT) for turn in turns])
        return costs


async def _once(durable: RedisDurable) -> None:
    """Have every script known to the server."""
    await durable.arrive("first", "input", 1)
    (turn,) = await durable.begin(NOW, HOUR)
    await durable.checkpointer.record(turn.holder, "step", 1)
    await durable.checkpointer.transact(turn.holder, "e", LuaEffect(RESERVE, [durable.hash_key("stock")]))
    await durable.renew(turn)
    await durable.finish(turn, 1)


async def take(url: str, server: RedisServer, meter: Meter, depth: int, *, stream: bool) -> tuple[Cost, float, float]:
    """Measure takes with so many queued, asleep and taken each; gives the cost, the median and the 99th percentile in ms."""
    server.call("FLUSHALL")
    kind: type[RedisScheduler] = RedisStreamScheduler if stream else RedisScheduler
    async with open(url, namespace=f"deep{stream}", stream=stream) as durable:
        await _once(durable)
        keys = durable.scheduler.places[0].keys
        clock = int((await durable.scheduler.now()).timestamp() * 1e6)
        for what in ("taken", "queued", "asleep"):
            for low in range(0, depth, 1000):
                source = SEED_STREAM if kind is RedisStreamScheduler else SEED_SET
                server.call("EVAL", source, len(keys), *keys, what, low, min(low + 1000, depth) - 1, clock)
        spent, turns = list[float](), list[Turn]()

        async def begin() -> None:
            began = time.perf_counter()
            turns.extend(await durable.begin(NOW, HOUR))
            spent.append((time.perf_counter() - began) * 1e3)

        cost = await meter.cost([begin] * REPEATS)
        assert len(turns) == REPEATS
        return cost, statistics.median(spent), sorted(spent)[int(len(spent) * 0.99)]


async def main(server: RedisServer, depths: Sequence[int]) -> None:
    """Print both tables."""
    meter = Meter(server)
    print(f"{server.kind} {server.version}\n\n| operation | round trips | commands | microseconds | log | sent | received |")
    for stream in (False, True):
        for name, cost in (await operations(server.url, meter, stream=stream)).items():
            numbers = cost.calls, cost.commands, cost.micros, cost.logged, cost.sent, cost.received
            row = " | ".join(f"{one:.0f}" for one in numbers)
            print(f"| {name}, {'stream' if stream else 'set'} | {row} |", flush=True)
    print("\n| take, with as many queued, asleep and taken | commands | microseconds in the script | p50 ms | p99 ms |")
    for stream in (False, True):
        for depth in depths:
            cost, middle, late = await take(server.url, server, meter, depth, stream=stream)
            kind = "stream" if stream else "set"
            print(f"| {kind}, {depth} | {cost.commands:.1f} | {cost.micros:.0f} | {middle:.2f} | {late:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depths", default="1000,100000,1000000")
    parser.add_argument("--flavour", choices=["redis", "valkey"], default="redis")
    options = parser.parse_args()
    with redis(options.flavour, appendfsync="everysec") as one:
        asyncio.run(main(one, [int(depth) for depth in options.depths.split(",")]))
