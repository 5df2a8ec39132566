"""Records and wakeups of workflows in one Redis, with one script for every transition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Protocol, Self

from redis.asyncio.cluster import RedisCluster

from durable_core.contract import (
    Catalog,
    Delivery,
    Description,
    Durable,
    Entry,
    Failed,
    Finished,
    Listed,
    Pass,
    Recorded,
    State,
    Turn,
)
from durable_core.errors import Fenced, Misconfigured
from durable_core.keys import (
    INBOX,
    OUTCOME,
    check_duration,
    check_limit,
    check_moment,
    check_once,
    check_open_key,
    check_wait,
    check_workflow,
)
from durable_redis import _catalog
from durable_redis._coding import (
    Decoded,
    RedisCodec,
    Reply,
    in_order,
    micros,
    micros_at,
    moment,
    names,
    number,
    pairs,
    parts,
    text,
)
from durable_redis._connection import Connection, nonce
from durable_redis._describe import check_server, describe
from durable_redis._wire import Argument, Client
from durable_redis.checkpointer import RedisCheckpointer
from durable_redis.effect import LuaEffect
from durable_redis.keys import Partitioned, check_namespace, check_partitions
from durable_redis.sorted_set import LEASE, RedisScheduler, receipt_of, seconds_of, storable

RECORDS = 500  # a turn brings so many records at most: a script that reads many holds up everybody
_BATCH = 100  # turns of one script at most
_FORGETTING = 60.0  # seconds between two looks for what has expired
_TRIES = 16  # times that begin asks anew whom to hint at, where others were quicker each time
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds between two looks of a watch


class Closable(Protocol):
    """What is closed with a store that owns it."""

    async def aclose(self) -> None:
        """Close it."""
        ...


class RedisDurable:
    """A `Durable[LuaEffect]` and a `Catalog`: the clauses of `durable_core.contract` hold, and each transition is one script.

    `partitions` says over how many tags workflows are spread, each with its queue: with one, all is in one slot and effects of
    all workflows can touch the same keys; on a cluster, more use more nodes. It is written down when the store is first
    prepared, and another number is refused. `retention` is how long a finished workflow is kept: for ever by default. `replicas`
    has every write wait until so many replicas have it, or raise redis-py's `TimeoutError`: it narrows what a failover can lose
    and does not close it. `flushed` has it wait until the server's disk has it, and those of so many replicas (`WAITAOF`, from
    Redis 7.2 on): with everysec that takes a second. `evictions` accepts a server that forgets under pressure. `declared` has no
    script touch a key that its call does not declare, where each workflow has one queue; where `prepare` finds that the server
    refuses others, that is so anyway. It costs `begin` a second round trip after a pause.

    `async with` prepares it; the client stays open: it is the application's, unless `open` made it.

    Raises: `Misconfigured` for a cluster's client without `partitions`.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str = "durable",
        partitions: int | None = None,
        queue: str = "default",
        lease: timedelta = LEASE,
        codec: RedisCodec | None = None,
        retention: timedelta | None = None,
        scheduler: type[RedisScheduler] = RedisScheduler,
        replicas: int = 0,
        flushed: bool = False,
        evictions: bool = False,
        declared: bool = False,
    ) -> None:
        check_namespace(namespace)
        check_partitions(_partitions(client, partitions))
        if retention is not None:
            check_duration(retention, "retention")
        self._layout = Partitioned(namespace, _partitions(client, partitions))
        self._connection = Connection(client, replicas, flushed)
        self._checkpointer = RedisCheckpointer.within(self._connection, self._layout, codec, queue)
        self._scheduler = scheduler.within(self._connection, self._layout, queue, lease)
        self._coding, self._queue, self._retention = self._checkpointer.coding, queue, retention
        self._evictions, self._owned = evictions, list[Closable]()
        self._declared = declared
        self._hints: list[Sequence[bytes]] = [()] * self._layout.partitions  # for each, whom the last look saw due
        self._ended, self._forgotten = asyncio.Event(), 0.0

    def __repr__(self) -> str:
        return f"RedisDurable({self._layout!r}, queue={self._queue!r})"

    async def prepare(self) -> None:
        """Connect, refuse a server that cannot keep the contract, write down the layout or verify it. Raises: `Misconfigured`."""
        await check_server(self._connection, retention=self._retention is not None, evictions=self._evictions)
        wanted = f"partitions {self._layout.partitions}"
        for layout, queues in self._layout.written():
            arguments = (layout, queues), wanted, self._queue.encode()
            reply = -1 if self._declared else await self._connection.run("prepare", *arguments, layout + b":probe")
            if reply == -1:
                self._declared = True
                reply = await self._connection.run("prepare", *arguments, "")
            found = text(reply)
            if found != wanted:
                raise Misconfigured(
                    f"namespace {self._layout.namespace!r} was laid out with {found}, and this is {wanted}: workflows would be "
                    "looked for where they are not. Use the number that was written down, or another namespace"
                )

    async def aclose(self) -> None:
        """Stop listening, and end what is under way."""
        await self._scheduler.aclose()
        for client in self._owned:
            await client.aclose()

    def owns(self, *clients: Closable) -> None:
        """Close these with the store: `open` made them."""
        self._owned += clients

    async def __aenter__(self) -> Self:
        try:
            await self.prepare()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    @property
    def checkpointer(self) -> RedisCheckpointer:
        """The half that keeps records."""
        return self._checkpointer

    @property
    def scheduler(self) -> RedisScheduler:
        """The half that keeps wakeups."""
        return self._scheduler

    def hash_key(self, name: str, workflow: str | None = None) -> str:
        """Give the key of the application's that effects can reach beside a workflow; with one partition, beside every workflow.

        Raises: `Misconfigured` with several partitions, when no workflow is named.
        """
        if workflow is None and self._layout.partitions > 1:
            raise Misconfigured(
                f"with {self._layout.partitions} partitions hash_key takes a workflow: keys live in its partition"
            )
        return self._layout.prefix(workflow or "") + name

    # ---------------------------------------------------------------------------------------------------------- client

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value and let the workflow run. Raises: `ReservedKey`, `NotEncodable`, `EffectTorn`. [DUR-ARRIVE]"""
        check_open_key(workflow, key, allow_input=True)
        mine = self._coding.encode(workflow, key, value)
        return self._coding.recorded(workflow, key, mine, await self._run("arrive", workflow, key.encode(), mine))

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox and let the workflow run. Raises: `NotEncodable`. [DUR-DELIVER]"""
        check_workflow(workflow)
        check_once(once)
        mine = self._coding.encode(workflow, INBOX, value)
        return self._checkpointer.entry(workflow, await self._run("deliver", workflow, mine, (once or "").encode(), nonce()))

    async def delete(self, workflow: str, /) -> int:
        """Forget the workflow, whatever it is doing, and say how many records it had. [DUR-DELETE]"""
        check_workflow(workflow)
        return number(await self._run("delete", workflow, nonce()))

    # ---------------------------------------------------------------------------------------------------------- worker

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        """Take up to `limit` deliveries, claim their workflows and load them. [DUR-BEGIN] [DUR-BEGIN-FRESH] [DUR-BEGIN-REPEAT]

        With several partitions one call takes from one of them, the next from the one after it.
        """
        seconds = check_wait(wait).total_seconds()
        check_duration(budget, "budget")
        check_limit(limit)

        async def look(place: int) -> tuple[list[Turn] | None, float | None]:
            return await self._connection.heard(self._begin(place, budget, min(limit, _BATCH)), self._take_back)

        return await self._scheduler.partitions.first(look, seconds, list[Turn]())

    async def _begin(self, place: int, budget: timedelta, limit: int) -> tuple[list[Turn] | None, float | None]:
        queue = self._scheduler.places[place]
        arguments = micros(self._scheduler.lease), micros(budget), limit, queue.records, queue.claims, queue.base, RECORDS
        declared = ("1",) if self._declared else ()
        for _ in range(_TRIES):
            hints = self._hints[place]
            keys = [*queue.keys, *queue.owned(hints)]
            reply = await self._connection.run(
                "begin", keys, nonce(), *arguments, *declared, *hints, variant=self._scheduler.variant
            )
            again, more, *turns = parts(reply)
            self._hints[place] = names(more) if declared else ()
            if turns:
                return [self._turn(parts(turn)) for turn in turns], None
            if not self._hints[place]:
                return None, 0.0 if more == b"1" else seconds_of(again)
        return None, 0.0

    def _turn(self, turn: Sequence[Reply]) -> Turn:
        workflow, receipt, attempt, lapses, due, token, at = turn[:7]
        name = text(workflow)
        records = turn[7] if len(turn) > 7 else None
        return Turn(
            Pass(name, number(token), moment(number(at))),
            Delivery(name, text(receipt), number(attempt), number(lapses), moment(number(due))),
            None if records is None else Decoded(self._coding, name, in_order(pairs(records))),
        )

    async def _take_back(self, begun: tuple[list[Turn] | None, float | None]) -> None:
        """Put back what was begun for a caller who was cancelled meanwhile."""
        for turn in begun[0] or ():
            await self.hand_back(turn, timedelta(0))

    async def renew(self, turn: Turn, /) -> Turn | None:
        """Give a sign of life for the turn; `None` when its claim is lost. [DUR-KEEP]"""
        return turn if await self._end("renew_turn", turn, micros(self._scheduler.lease)) == 1 else None

    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        """End the workflow with its outcome. Raises: `Fenced`, `NotEncodable`. [DUR-FINISH] [DUR-TURN-FENCED]"""
        workflow = turn.holder.workflow
        check_workflow(workflow)
        mine = self._coding.encode(workflow, OUTCOME, value)
        retention = "" if self._retention is None else max(micros(self._retention) // 1000, 1)
        reply = await self._end("finish", turn, mine, retention)
        if reply == -1:
            raise Fenced(workflow, turn.holder.token, OUTCOME)
        self._told()
        self._forget_expired()
        return self._coding.recorded(workflow, OUTCOME, mine, reply)

    async def pause(self, turn: Turn, due: datetime | None, /) -> None:
        """End the pass while the workflow waits. [DUR-PAUSE] [DUR-TURN-FENCED]"""
        at = "" if due is None else micros_at(check_moment(due, "due"))
        await self._end("pause", turn, at)

    async def fail(self, turn: Turn, reason: str, again_in: timedelta | None, /) -> None:
        """End the pass as a failed attempt, to be tried again or set aside. [DUR-FAIL] [DUR-TURN-FENCED]"""
        if again_in is not None:
            check_duration(again_in, "again_in")
        delay = "" if again_in is None else micros(again_in)
        await self._end("fail", turn, delay, turn.delivery.attempt + 1, storable(reason))
        self._told()

    async def hand_back(self, turn: Turn, again_in: timedelta, /) -> None:
        """End the pass untouched; an `again_in` of zero means at once. [DUR-HAND-BACK] [DUR-TURN-FENCED]"""
        delay, delivery = micros(check_wait(again_in, "again_in")), turn.delivery
        await self._end("hand_back", turn, delay, delivery.attempt, delivery.lapses)

    async def _end(self, name: str, turn: Turn, *arguments: Argument) -> Reply:
        workflow = turn.holder.workflow
        check_workflow(workflow)
        if turn.delivery.workflow != workflow:
            raise ValueError(f"the turn's pass is of workflow {workflow!r} and its delivery of {turn.delivery.workflow!r}")
        return await self._run(name, workflow, str(turn.holder.token), receipt_of(turn.delivery), *arguments)

    async def _run(self, name: str, workflow: str, *arguments: Argument) -> Reply:
        owned, queue = self._layout.of(workflow), self._scheduler.place_of(workflow)
        assert owned.index is not None
        assert owned.finished is not None
        keys = (owned.records, owned.claim, owned.nonces, owned.index, owned.finished, *queue.keys)
        return await self._connection.run(name, keys, owned.workflow, *arguments, variant=self._scheduler.variant)

    # --------------------------------------------------------------------------------------------------------- results

    async def result(self, workflow: str, /) -> Finished[object] | Failed | None:
        """Give how the workflow ended, or `None`. Raises: `NotParsed`, `EffectTorn`. [DUR-RESULT]"""
        check_workflow(workflow)
        keys = [self._layout.of(workflow).records, self._scheduler.place_of(workflow).states]
        outcome, reason = parts(await self._connection.run("result", keys, workflow.encode()))
        if isinstance(outcome, bytes):
            return Finished(self._coding.whole(workflow, OUTCOME, outcome))
        return None if reason is None else Failed(text(reason))

    async def watch(self, workflow: str, wait: timedelta, /) -> None:
        """Return when the workflow has a result, or after `wait`. [DUR-RESULT]

        An end in this process is seen at once, one in another process after a look: at growing intervals, of a second at most.
        """
        check_workflow(workflow)
        deadline, pause = time.monotonic() + check_wait(wait).total_seconds(), _FIRST_PAUSE
        while True:
            ended = self._ended
            if await self.result(workflow) is not None:
                return
            left = deadline - time.monotonic()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(min(pause, left)):
                    await ended.wait()
            except TimeoutError:
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _told(self) -> None:
        self._ended.set()
        self._ended = asyncio.Event()

    async def describe(self, /) -> Description:
        """Say what the store is and promises now. [DUR-DESCRIBE]"""
        poll = timedelta(seconds=self._scheduler.bell.block)
        return await describe(self._connection, lists=True, co_commits=True, poll=poll, flushed=self._connection.flushed)

    # --------------------------------------------------------------------------------------------------------- catalog

    async def workflows(
        self, /, *, prefix: str = "", state: State | None = None, after: str | None = None, limit: int = 100
    ) -> Sequence[Listed]:
        """Give a page of workflows in the order of their ids, by code point; their wakeups are those of this queue. [CAT-LIST]"""
        check_limit(limit)
        return await _catalog.workflows(self._connection, self._scheduler, prefix, state, after, limit)

    async def sweep(self, finished_before: datetime, /) -> int:
        """Discard workflows that finished before an instant of the store's clock, a hundred in a script. [CAT-SWEEP]"""
        before = micros_at(check_moment(finished_before, "finished_before"))
        return await _catalog.sweep(self._connection, self._layout, before)

    def _forget_expired(self) -> None:
        """Once a minute, take what has expired out of the index. A key that expires takes nothing else with it."""
        now = time.monotonic()
        if self._retention is not None and now - self._forgotten > _FORGETTING:
            self._forgotten = now
            self._connection.tidy(self._forget(self._retention))

    async def _forget(self, retention: timedelta) -> None:
        before = await self._scheduler.now() - retention
        await _catalog.sweep(self._connection, self._layout, micros_at(before), expired=True)


def _partitions(client: Client, partitions: int | None) -> int:
    if partitions is None and isinstance(client, RedisCluster):
        raise Misconfigured(
            "on a cluster RedisDurable takes partitions=: 1 keeps everything in one slot, on one node; more spread workflows "
            "over nodes, and an effect then reaches the keys of its own workflow's partition only"
        )
    return 1 if partitions is None else partitions


_: type[Durable[LuaEffect]] = RedisDurable
_catalog_too: type[Catalog] = RedisDurable
