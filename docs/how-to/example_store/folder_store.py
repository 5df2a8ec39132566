"""A store in a folder of files: one for each workflow's records and claim, one for each queue's wakeups.

It is complete and small, and meant to be read. Every change is made under one lock for the whole folder, and replaces a file in one
step; the clock is the machine's, which all processes that share the folder have.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Never

from durable_core.codec import JsonCodec, decoded_for, encoded_for, roundtripped
from durable_core.contract import Delivery, Description, Entry, Pass, Recorded, Written
from durable_core.errors import Fenced, Misconfigured
from durable_core.keys import (
    INBOX,
    check_count,
    check_duration,
    check_key,
    check_moment,
    check_once,
    check_skip,
    check_wait,
    check_workflow,
    inbox_key,
    inbox_number,
)

POLL = timedelta(milliseconds=20)
LATEST = datetime.max.replace(tzinfo=UTC).timestamp()


@dataclass
class Record:
    """One record: what the codec made of the value, when, and the sender's id of an entry."""

    encoded: str
    at: float
    once: str | None = None


@dataclass
class Workflow:
    """One workflow's file. `token` is the last one issued; the claim is held while `now < min(seen + alive, until)`."""

    records: dict[str, Record] = field(default_factory=dict[str, Record])
    token: int = 0
    held: bool = False
    fenced: bool = True
    seen: float = 0.0
    alive: float = 0.0
    until: float = 0.0

    def lapses_at(self) -> float:
        """When the claim lapses, should nothing more be heard of its pass."""
        return min(self.seen + self.alive, self.until)

    def is_current(self, holder: Pass) -> bool:
        """Whether this pass is the last one that was granted, and not fenced since."""
        return not self.fenced and self.token == holder.token


@dataclass
class Wakeup:
    """One workflow's right to run, from `due` on; with a receipt it is taken, and due again then unless it is answered."""

    due: float
    attempt: int = 1
    lapses: int = 0
    receipt: str | None = None
    newer: bool = False
    reason: str | None = None


class Folder:
    """The files, and the lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Generator[float]:
        """Have the folder alone, among all processes; gives the time, which was read when that was so."""
        with open(self._path / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield time.time()

    @contextmanager
    def workflow(self, name: str) -> Generator[tuple[Workflow, float]]:
        """Change one workflow: what the block makes of it is written when it ends well."""
        path = self._file("workflow", name)
        with self.locked() as now:
            text = path.read_text() if path.exists() else '{"records": {}}'
            kept = json.loads(text)
            records = {key: Record(**record) for key, record in kept.pop("records").items()}
            workflow = Workflow(records, **kept)
            yield workflow, now
            self._replace(path, text, asdict(workflow))

    @contextmanager
    def queue(self, name: str) -> Generator[tuple[dict[str, Wakeup], float]]:
        """Change a queue: what the block makes of it is written when it ends well."""
        path = self._file("queue", name)
        with self.locked() as now:
            text = path.read_text() if path.exists() else "{}"
            wakeups = {workflow: Wakeup(**wakeup) for workflow, wakeup in json.loads(text).items()}
            yield wakeups, now
            self._replace(path, text, {workflow: asdict(wakeup) for workflow, wakeup in wakeups.items()})

    def _file(self, kind: str, name: str) -> Path:
        # A digest, because ids may be longer than file names, and differ in what file systems fold.
        return self._path / f"{kind}-{hashlib.sha256(name.encode()).hexdigest()}.json"

    def _replace(self, path: Path, before: str, content: dict[str, object]) -> None:
        after = json.dumps(content)
        if after != before:
            fresh = path.with_suffix(".new")
            fresh.write_text(after)
            os.replace(fresh, path)  # in one step: who dies before it has changed nothing


def describe() -> Description:
    """Say what this store promises; it has no effects, no catalog and no joined clients."""
    return Description(
        product="folder",
        version="1",
        survives_kill="yes",
        survives_power_cut="no",
        survives_failover="no",
        transacts=False,
        undoes=False,
        interleaves=False,
        co_commits=False,
        joins=False,
        lists=False,
        poll=POLL,
    )


def moment(at: float) -> datetime:
    """Give an instant of the store's clock."""
    return datetime.fromtimestamp(min(at, LATEST), UTC)


class FolderCheckpointer:
    """Keeps records, and lets one pass at a time write them. Note the bare form: it is a `Checkpointer`, and does not inherit from it."""

    def __init__(self, path: Path) -> None:
        self._folder = Folder(path)
        self._codec = JsonCodec()

    def roundtrip(self, value: object, /) -> object:
        return roundtripped(self._codec, value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        check_workflow(workflow)
        check_skip(skip)
        with self._folder.workflow(workflow) as (kept, _):
            records = dict(list(kept.records.items())[skip:])
        return {key: decoded_for(self._codec, workflow, key, record.encoded) for key, record in records.items()}

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        check_key(holder.workflow, key)
        encoded = encoded_for(self._codec, holder.workflow, key, value)  # a refusal comes before anything is done
        with self._folder.workflow(holder.workflow) as (kept, now):
            if not kept.is_current(holder):
                raise Fenced(holder.workflow, holder.token, key)
            if kept.held:
                kept.seen = now
            stored = kept.records.setdefault(key, Record(encoded, now)).encoded
        return Recorded(decoded_for(self._codec, holder.workflow, key, stored), stored == encoded)

    async def transact(self, holder: Pass, key: str, effect: Never, /) -> object:
        raise Misconfigured("a store in a folder has nothing that could be committed beside a record")

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        check_key(workflow, key)
        encoded = encoded_for(self._codec, workflow, key, value)
        with self._folder.workflow(workflow) as (kept, now):
            stored = kept.records.setdefault(key, Record(encoded, now)).encoded
        return Recorded(decoded_for(self._codec, workflow, key, stored), stored == encoded)

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        check_workflow(workflow)
        check_once(once)
        encoded = encoded_for(self._codec, workflow, INBOX, value)
        with self._folder.workflow(workflow) as (kept, now):
            sent = [key for key, record in kept.records.items() if once is not None and record.once == once]
            if sent:
                key = sent[0]
            else:
                key = inbox_key(1 + max((inbox_number(one) for one in kept.records if one.startswith(INBOX)), default=0))
                kept.records[key] = Record(encoded, now, once)
            stored = kept.records[key].encoded
        return Entry(key, decoded_for(self._codec, workflow, key, stored))

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        check_workflow(workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        with self._folder.workflow(workflow) as (kept, now):
            if kept.held and now < kept.lapses_at():
                return None
            kept.token += 1
            kept.held, kept.fenced = True, False
            kept.seen, kept.alive, kept.until = now, alive.total_seconds(), now + budget.total_seconds()
            return Pass(workflow, kept.token, moment(now))

    async def extend(self, holder: Pass, budget: timedelta, alive: timedelta, /) -> bool:
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        with self._folder.workflow(holder.workflow) as (kept, now):
            if not (kept.is_current(holder) and kept.held):
                return False
            kept.seen, kept.alive = now, alive.total_seconds()
            kept.until = max(kept.until, now + budget.total_seconds())
            return True

    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        check_duration(alive, "alive")
        with self._folder.workflow(holder.workflow) as (kept, now):
            if not (kept.is_current(holder) and kept.held) or now >= kept.until:
                return False
            kept.seen, kept.alive = now, alive.total_seconds()
            return True

    async def release(self, holder: Pass, /) -> None:
        with self._folder.workflow(holder.workflow) as (kept, _):
            if kept.is_current(holder):
                kept.held = False

    async def history(self, workflow: str, /) -> dict[str, Written]:
        check_workflow(workflow)
        with self._folder.workflow(workflow) as (kept, _):
            records = dict(kept.records)
        return {
            key: Written(decoded_for(self._codec, workflow, key, record.encoded), moment(record.at))
            for key, record in records.items()
        }

    async def discard(self, workflow: str, /) -> int:
        check_workflow(workflow)
        with self._folder.workflow(workflow) as (kept, _):
            count = len(kept.records)
            kept.records.clear()
            kept.held, kept.fenced = False, True  # the token stays: the next one is larger
            return count

    async def describe(self, /) -> Description:
        return describe()


class FolderScheduler:
    """Says when a workflow may run."""

    def __init__(self, path: Path, queue: str, lease: timedelta) -> None:
        self._folder, self._queue, self._lease = Folder(path), queue, lease

    @property
    def lease(self) -> timedelta:
        return self._lease

    async def now(self, /) -> datetime:
        return moment(time.time())

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        check_workflow(workflow)
        with self._folder.queue(self._queue) as (wakeups, now):
            wakeup = wakeups.get(workflow)
            if wakeup is None or (wakeup.reason is not None and revive):
                wakeups[workflow] = Wakeup(now)
            elif wakeup.receipt is not None or wakeup.reason is not None:
                wakeup.newer = True  # another delivery, when the running one is answered
            else:
                wakeup.due = min(wakeup.due, now)

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        ends = time.monotonic() + check_wait(wait).total_seconds()
        while (delivery := self._take()) is None and time.monotonic() < ends:
            await asyncio.sleep(POLL.total_seconds())
        return delivery

    def _take(self) -> Delivery | None:
        with self._folder.queue(self._queue) as (wakeups, now):
            due = [(one.due, workflow) for workflow, one in wakeups.items() if one.reason is None and one.due <= now]
            if not due:
                return None
            was_due, workflow = min(due)
            wakeup = wakeups[workflow]
            lapsed = 0 if wakeup.receipt is None else 1
            receipt = os.urandom(12).hex()
            ends = now + self._lease.total_seconds()
            wakeups[workflow] = Wakeup(ends, wakeup.attempt + lapsed, wakeup.lapses + lapsed, receipt)
            return Delivery(workflow, receipt, wakeup.attempt + lapsed, wakeup.lapses + lapsed, moment(was_due))

    async def renew(self, delivery: Delivery, /) -> Delivery:
        with self._folder.queue(self._queue) as (wakeups, now):
            wakeup = wakeups.get(delivery.workflow)
            if wakeup is not None and wakeup.receipt == delivery.receipt:
                wakeup.due = now + self._lease.total_seconds()
        return delivery

    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        due = check_moment(when, "when").timestamp()
        check_count(attempt, lapses)
        with self._folder.queue(self._queue) as (wakeups, now):
            wakeup = wakeups.get(delivery.workflow)
            if wakeup is not None and wakeup.receipt == delivery.receipt:
                wakeups[delivery.workflow] = Wakeup(min(due, now) if wakeup.newer else due, attempt, lapses)

    async def done(self, delivery: Delivery, /) -> None:
        with self._folder.queue(self._queue) as (wakeups, now):
            wakeup = wakeups.get(delivery.workflow)
            if wakeup is not None and wakeup.receipt == delivery.receipt:
                del wakeups[delivery.workflow]
                if wakeup.newer:
                    wakeups[delivery.workflow] = Wakeup(now)

    async def bury(self, delivery: Delivery, reason: str, /) -> None:
        with self._folder.queue(self._queue) as (wakeups, _):
            wakeup = wakeups.get(delivery.workflow)
            if wakeup is not None and wakeup.receipt == delivery.receipt:
                wakeup.receipt, wakeup.reason = None, reason

    async def buried(self, workflow: str, /) -> str | None:
        check_workflow(workflow)
        with self._folder.queue(self._queue) as (wakeups, _):
            return wakeups[workflow].reason if workflow in wakeups else None

    async def cancel(self, workflow: str, /) -> None:
        check_workflow(workflow)
        with self._folder.queue(self._queue) as (wakeups, _):
            wakeups.pop(workflow, None)

    async def describe(self, /) -> Description:
        return describe()
