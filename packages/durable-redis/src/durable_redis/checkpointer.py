"""The records of workflows in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redis.exceptions import ResponseError

from durable_core.codec import JsonCodec
from durable_core.contract import Checkpointer, Description, Entry, Pass, Recorded, Written
from durable_core.errors import EffectTorn, Fenced, NotEncodable
from durable_core.keys import (
    INBOX,
    OUTCOME,
    check_duration,
    check_key,
    check_once,
    check_skip,
    check_workflow,
    inbox_key,
    inbox_number,
)
from durable_redis import effect
from durable_redis._coding import Coding, RedisCodec, Reply, Stored, in_order, micros, moment, number, pairs, parts
from durable_redis._connection import Connection, nonce
from durable_redis._describe import describe
from durable_redis._scripts import script
from durable_redis._wire import Client
from durable_redis.effect import LuaEffect
from durable_redis.keys import Layout, Owned, Partitioned, Queue, Tagged, check_effect_keys, check_namespace


class RedisCheckpointer:
    """A `Checkpointer[LuaEffect]`: the clauses of `durable_core.contract.Checkpointer` hold, each write is one script.

    By itself it gives each workflow a slot of its own, so that workflows spread over a cluster; with a scheduler it then is a
    `SplitDurable`. The one that `RedisDurable` makes shares its partitions. A codec may give `str` or `bytes`.

    Every method may raise what redis-py raises when the server cannot be reached; a call that was lost on its way is repeated,
    and gives the same answer. [ANY-REPEAT]
    """

    def __init__(self, client: Client, *, namespace: str = "durable", codec: RedisCodec | None = None) -> None:
        check_namespace(namespace)
        self._set_up(Connection(client), Tagged(namespace), codec, None)

    @classmethod
    def within(cls, connection: Connection, layout: Partitioned, codec: RedisCodec | None, queue: str) -> RedisCheckpointer:
        """Give the half of a durable, whose wakeups share its partitions."""
        made = cls.__new__(cls)
        made._set_up(connection, layout, codec, queue)
        return made

    def _set_up(self, connection: Connection, layout: Layout, codec: RedisCodec | None, queue: str | None) -> None:
        self.connection: Connection = connection
        self.layout: Layout = layout
        self._queue = queue
        self.coding: Coding = Coding(JsonCodec() if codec is None else codec)
        self._record = script("record")

    def __repr__(self) -> str:
        return f"RedisCheckpointer({self.layout!r})"

    async def prepare(self) -> None:
        """Connect, and refuse a server that cannot keep the contract. Raises: `Misconfigured`."""
        await self.connection.check_server()

    async def aclose(self) -> None:
        """End what is under way. The client stays open: it is the application's."""
        await self.connection.aclose()

    def hash_key(self, workflow: str, name: str) -> str:
        """Give the key of the application's that shares a workflow's slot, for an effect's `keys`."""
        check_workflow(workflow)
        return self.layout.prefix(workflow) + name

    def roundtrip(self, value: object, /) -> object:
        """Give `decode(encode(value))`. Raises: `NotEncodable`."""
        return self.coding.roundtrip(value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        """Give every record but the first `skip`. Raises: `NotParsed`. [CKP-LOAD-ORDER] [CKP-LOAD-PREFIX]"""
        check_workflow(workflow)
        check_skip(skip)
        return self.coding.decode_all(workflow, (await self._fields(workflow))[skip:])

    async def _fields(self, workflow: str) -> list[Stored]:
        return in_order(pairs(await self.connection.call("HGETALL", self.layout.of(workflow).records)))

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        """Record as the holder. Raises: `Fenced`, `NotEncodable`. [CKP-RECORD-ONCE] [CKP-RECORD-FENCED] [CKP-RECORD-DURABLE]"""
        workflow = holder.workflow
        check_key(workflow, key)
        mine, owned = self.coding.encode(workflow, key, value), self.layout.of(workflow)
        keys = owned.indexed(owned.records, owned.claim, outcome=key == OUTCOME)
        reply = await self.connection.run_script(
            self._record, keys, str(holder.token), key.encode(), mine, owned.workflow, _inbox(key)
        )
        if reply == -1:
            raise Fenced(workflow, holder.token, key)
        return self.coding.recorded(workflow, key, mine, reply)

    async def transact(self, holder: Pass, key: str, effect_: LuaEffect, /) -> object:
        """Apply an effect and record its result in one script. [CKP-TRANSACT-ONCE] [CKP-TRANSACT-TORN] [CKP-TRANSACT-OWN]

        The server does nothing else while the effect runs. An error before its first write leaves nothing and is raised as
        redis-py's `ResponseError`; one after it leaves the key torn.

        Raises: `Fenced`, `NotEncodable`, `EffectTorn`, `Misconfigured`, and `ValueError` for a key in another slot.
        """
        workflow = holder.workflow
        check_key(workflow, key)
        effect.check(effect_)
        keys, owned = effect_.wire_keys(), self.layout.of(workflow)
        check_effect_keys(self.layout, workflow, keys)
        ours = owned.indexed(owned.records, owned.claim, outcome=key == OUTCOME)
        reply = await self.connection.run(
            "transact",
            [*ours, *keys],
            str(holder.token),
            key.encode(),
            owned.workflow,
            _inbox(key),
            self.coding.encode(workflow, key, None),
            "1" if self.coding.is_json else "",
            len(ours),
            effect_.source,
            *effect_.wire_args(),
        )
        return self._applied(holder, key, parts(reply))

    def _applied(self, holder: Pass, key: str, reply: Sequence[Reply]) -> object:
        status, said = reply[0], reply[1] if len(reply) > 1 else b""
        assert isinstance(said, bytes)
        if status == 1:
            return self.coding.decode(holder.workflow, key, said)
        if status == -1:
            raise Fenced(holder.workflow, holder.token, key)
        reason = said.decode(errors="replace")
        if status == -2:
            raise EffectTorn(holder.workflow, key, reason)
        if status == -3:
            raise ResponseError(reason)
        raise NotEncodable(reason, holder.workflow, key)

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record from outside any pass. Raises: `NotEncodable`. [CKP-SUPPLY-FREE] [CKP-SUPPLY-ONCE]"""
        check_key(workflow, key)
        mine, owned = self.coding.encode(workflow, key, value), self.layout.of(workflow)
        keys = owned.indexed(owned.records, outcome=key == OUTCOME)
        reply = await self.connection.run("supply", keys, owned.workflow, key.encode(), mine, _inbox(key))
        return self.coding.recorded(workflow, key, mine, reply)

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox. Raises: `NotEncodable`, `ValueError` if it is full. [CKP-APPEND-ABOVE] [CKP-APPEND-ONCE]"""
        check_workflow(workflow)
        check_once(once)
        mine, owned = self.coding.encode(workflow, INBOX, value), self.layout.of(workflow)
        keys = owned.indexed(owned.records, owned.nonces)
        reply = await self.connection.run("append", keys, owned.workflow, mine, (once or "").encode(), nonce())
        return self.entry(workflow, reply)

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        """Take the workflow for one pass, or give `None`. [CKP-CLAIM-ONE] [CKP-CLAIM-RISING] [CKP-CLAIM-REPEAT]"""
        check_workflow(workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        return await self.connection.heard(self._claim(workflow, budget, alive), self._take_back)

    async def _claim(self, workflow: str, budget: timedelta, alive: timedelta) -> Pass | None:
        owned = self.layout.of(workflow)
        keys = owned.indexed(owned.records, owned.claim)
        granted = await self.connection.run("claim", keys, owned.workflow, nonce(), micros(budget), micros(alive))
        if granted is None:
            return None
        token, at = parts(granted)
        return Pass(workflow, number(token), moment(number(at)))

    async def _take_back(self, holder: Pass | None) -> None:
        if holder is not None:
            await self.release(holder)

    async def extend(self, holder: Pass, budget: timedelta, alive: timedelta, /) -> bool:
        """Grant `budget` from now. [CKP-EXTEND-GRANT] [CKP-EXTEND-LAPSED] [CKP-HOLD-LOST]"""
        check_workflow(holder.workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        owned = self.layout.of(holder.workflow)
        arguments = owned.workflow, str(holder.token), micros(budget), micros(alive)
        return await self.connection.run("extend", self._claim_keys(holder.workflow, owned), *arguments) == 1

    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        """Give a sign of life. [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET] [CKP-HOLD-LOST]"""
        check_workflow(holder.workflow)
        check_duration(alive, "alive")
        owned = self.layout.of(holder.workflow)
        arguments = owned.workflow, str(holder.token), micros(alive)
        return await self.connection.run("renew", self._claim_keys(holder.workflow, owned), *arguments) == 1

    async def release(self, holder: Pass, /) -> None:
        """Give the claim back. [CKP-RELEASE-FREE] [CKP-RELEASE-FINAL]"""
        check_workflow(holder.workflow)
        owned = self.layout.of(holder.workflow)
        await self.connection.run("release", self._claim_keys(holder.workflow, owned), owned.workflow, str(holder.token))

    async def history(self, workflow: str, /) -> dict[str, Written]:
        """Give every record with its time. Raises: `NotParsed`. [CKP-HISTORY-SAME] [CKP-HISTORY-TIME] [CKP-HISTORY-RISING]"""
        check_workflow(workflow)
        records = await self._fields(workflow)
        values = self.coding.decode_all(workflow, records).items()
        return {name: Written(value, moment(int(at))) for (name, value), (_, _, at, _) in zip(values, records, strict=True)}

    async def discard(self, workflow: str, /) -> int:
        """Forget every record, and say how many there were. [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE] [CKP-DISCARD-FREE]"""
        check_workflow(workflow)
        owned, queue = self.layout.of(workflow), self._queue_of(workflow)
        keys = [owned.records, owned.claim, owned.nonces]
        if queue is not None and owned.index is not None and owned.finished is not None:
            keys += [owned.index, owned.finished, *queue.keys]
        return number(await self.connection.run("discard", keys, owned.workflow, nonce()))

    async def mend(self, workflow: str, key: str, value: object, /) -> bool:
        """Replace a torn mark by the value that was found to be true; `False` where there is none. [CKP-TRANSACT-TORN]

        Position and time stay. Raises: `NotEncodable`.
        """
        check_key(workflow, key)
        marked = self.coding.encode(workflow, key, value)
        return await self.connection.run("mend", [self.layout.of(workflow).records], key.encode(), marked) == 1

    async def describe(self, /) -> Description:
        """Say what the store promises now. [DUR-DESCRIBE]"""
        return await describe(self.connection, lists=False, co_commits=False)

    def entry(self, workflow: str, reply: Reply) -> Entry[object]:
        """Give the answer of an append. Raises: `ValueError` where the inbox is full."""
        if reply is None:
            raise ValueError(f"the inbox of workflow {workflow!r} is full: the number of its next entry would be 2^53")
        digits, marked = parts(reply)
        assert isinstance(marked, bytes)
        key = inbox_key(number(digits))
        return Entry(key, self.coding.decode(workflow, key, marked))

    def _queue_of(self, workflow: str) -> Queue | None:
        if self._queue is None or isinstance(self.layout, Tagged):
            return None
        return self.layout.queue(self._queue, self.layout.place(workflow))

    def _claim_keys(self, workflow: str, owned: Owned) -> tuple[bytes, ...]:
        """Give the claim, and the queue whose taker may wait for it. [DUR-BEGIN]"""
        queue = self._queue_of(workflow)
        return (owned.claim,) if queue is None else (owned.claim, *queue.keys)


def _inbox(key: str) -> str:
    return str(inbox_number(key)) if key.startswith(INBOX) else ""


_: type[Checkpointer[LuaEffect]] = RedisCheckpointer
