"""What operators see, and the sweep: in small parts, so that the server does other things in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from durable_core.contract import Listed, State
from durable_redis._coding import Reply, moment, names, number, parts, text
from durable_redis._connection import Connection
from durable_redis.keys import Partitioned
from durable_redis.sorted_set import RedisScheduler

_PART = 100  # workflows that one script looks at; their keys are declared, so they are found before it


async def workflows(
    connection: Connection, scheduler: RedisScheduler, prefix: str, state: State | None, after: str | None, limit: int
) -> list[Listed]:
    """Give a page in the order of the ids' UTF-8. [CAT-LIST]"""
    page: list[Listed] = []
    start = prefix.encode()
    place: bytes | None = b"[" + start if start else b"-"
    if after is not None and after.encode() >= start:
        place = b"(" + after.encode()
    while place is not None and len(page) < limit:
        looked_at = await _part(connection, scheduler, place)
        place = b"(" + looked_at[-1][0].encode() if looked_at else None
        for workflow, listed in looked_at:
            if not workflow.startswith(prefix):
                place = None
                break
            if listed is not None and state in (None, listed.state):
                page.append(listed)
    return page[:limit]


async def _part(connection: Connection, scheduler: RedisScheduler, place: bytes) -> list[tuple[str, Listed | None]]:
    """Give the next workflows of all partitions together."""
    found = list[tuple[str, Listed | None]]()
    for queue in scheduler.places:
        looked_at = names(await connection.call("ZRANGEBYLEX", queue.index, place, "+", "LIMIT", 0, _PART))
        if looked_at:
            keys = [*queue.keys, *queue.owned(looked_at)]
            reply = parts(await connection.run("workflows", keys, *looked_at, variant=scheduler.variant))
            found += [_listed(number(reply[0]), parts(one)) for one in parts(reply[1])]
    found.sort(key=lambda one: one[0].encode())
    return found[:_PART]


def _listed(now: int, one: Sequence[Reply]) -> tuple[str, Listed | None]:
    workflow, records, finished, held, raw, score, lease, times = one
    name = text(workflow)
    first, last = parts(times)
    receipt, attempt, due, reason = _wakeup(text(raw), text(score), text(lease))
    if not records and held == b"" and receipt is None:
        return name, None
    return name, Listed(
        workflow=name,
        state=_state(now, finished == 1, held != b"", receipt, due, reason),
        records=number(records),
        first=None if first is None else moment(number(first)),
        last=None if last is None else moment(number(last)),
        due=None if due is None or reason is not None else moment(due),
        held_until=moment(number(held)) if held != b"" else None,
        attempt=attempt,
        reason=reason,
    )


def _wakeup(raw: str, score: str, lease: str) -> tuple[str | None, int | None, int | None, str | None]:
    """Give receipt, attempt, due time and reason; all `None` without a wakeup. `lua/include` says what a state is."""
    if not raw:
        return ("", 1, int(float(score)), None) if score else (None, None, None, None)
    receipt, attempt, _, _, due, mark = raw.split("|", 5)
    if receipt == "!":
        return receipt, int(attempt), None, mark[1:]
    until = lease or score
    if receipt and until:
        return receipt, int(attempt), int(float(until)), None
    return receipt, int(attempt), int(due) if due else int(float(score)), None


def _state(now: int, finished: bool, held: bool, receipt: str | None, due: int | None, reason: str | None) -> State:
    """Give the first that applies. A delivery that is out counts as running: somebody is at it."""
    if finished:
        return "finished"
    if reason is not None:
        return "buried"
    if held or (_is_out(receipt) and due is not None and now < due):
        return "running"
    if due is None:
        return "blocked"
    return "ready" if due <= now else "sleeping"


def _is_out(receipt: str | None) -> TypeGuard[str]:
    return receipt is not None and receipt != ""


async def sweep(connection: Connection, layout: Partitioned, before: int, *, expired: bool = False) -> int:
    """Discard what finished before an instant; with `expired`, forget only what has expired by itself. [CAT-SWEEP]"""
    count = 0
    for place in range(layout.partitions):
        passed_over = 0
        while True:
            finished = layout.finished(place)
            looked_at = names(await connection.call("ZRANGEBYSCORE", finished, "-inf", f"({before}", "LIMIT", passed_over, _PART))
            if not looked_at:
                break
            queues = names(await connection.call("SMEMBERS", layout.queues(place)))
            kept = [layout.queue(name.decode(), place) for name in queues]
            owned = [layout.of(name.decode()) for name in looked_at]
            keys = [
                *(finished, layout.queue("-", place).index, layout.queues(place)),
                *(key for queue in kept for key in (queue.keys[0], queue.states)),
                *(key for one in owned for key in (one.records, one.claim, one.nonces)),
            ]
            arguments = before, "1" if expired else "", len(queues), *queues, *looked_at
            reply = await connection.run("sweep", keys, *arguments)
            if reply is not None:
                swept, left = (number(part) for part in parts(reply))
                count += swept
                passed_over += left
    return count
