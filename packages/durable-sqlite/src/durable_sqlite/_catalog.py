"""What operators see, and the sweep. A page is found and a sweep is done in small parts, so that other calls go in between."""

from __future__ import annotations

from dataclasses import dataclass, replace

from durable_core.contract import Listed, State
from durable_sqlite import _claims, _records, sql
from durable_sqlite._tx import Tx, moment

_PART = 200  # workflows that are looked at, or discarded, before somebody else has a turn

Place = tuple[int, str]
START: Place | None = (-(2**63), "")


@dataclass(frozen=True, slots=True)
class Seek:
    """What is looked for, and after which id; `queue` is the one whose wakeup is shown where a workflow has several."""

    prefix: str
    state: State | None
    after: str | None
    queue: str


def workflows(tx: Tx, seek: Seek, limit: int) -> tuple[list[Listed], Seek | None]:
    """Give some of a page as it is at one moment, and where to go on, or `None` at the end. [CAT-LIST]"""
    tx.execute(sql.SNAPSHOT)
    try:
        tx.tick()
        return _part(tx, seek, limit)
    finally:
        if tx.connection.in_transaction:
            tx.execute(sql.ROLLBACK)


def _part(tx: Tx, seek: Seek, limit: int) -> tuple[list[Listed], Seek | None]:
    found: list[Listed] = []
    current = seek.after if seek.after is not None and seek.after >= seek.prefix else None
    for _ in range(_PART):
        workflow = _next(tx, current, seek.prefix)
        if workflow is None:
            return found, None
        listed = _listed(tx, workflow, seek.queue)
        if listed is not None and seek.state in (None, listed.state):
            found.append(listed)
        current = workflow
        if len(found) == limit:
            break
    return found, replace(seek, after=current)


def _next(tx: Tx, current: str | None, prefix: str) -> str | None:
    statement = sql.WORKFLOWS_FIRST if current is None else sql.WORKFLOWS_NEXT
    workflow: str | None = tx.execute(statement, (prefix if current is None else current,) * 3).fetchall()[0][0]
    return workflow if workflow is not None and workflow.startswith(prefix) else None


def _listed(tx: Tx, workflow: str, queue: str) -> Listed | None:
    records, first, last, finished = tx.execute(sql.WORKFLOWS_RECORDS, (workflow,)).fetchall()[0]
    wakeups: list[tuple[int, int, int | None, str | None]] = tx.execute(sql.WORKFLOWS_QUEUE, (workflow, queue)).fetchall()
    held = _claims.live_until(tx, workflow)
    if not records and held is None and not wakeups:
        return None
    due, attempt, receipt, reason = wakeups[0] if wakeups else (None, None, None, None)
    return Listed(
        workflow=workflow,
        state=_state(tx.now, bool(finished), held, due, receipt, reason),
        records=records,
        first=None if first is None else moment(first),
        last=None if last is None else moment(last),
        due=None if due is None or reason is not None else moment(due),
        held_until=None if held is None else moment(held),
        attempt=attempt,
        reason=reason,
    )


def _state(now: int, finished: bool, held: int | None, due: int | None, receipt: int | None, reason: str | None) -> State:
    """Give the first that applies. A delivery that is out counts as running: somebody is at it."""
    if finished:
        return "finished"
    if reason is not None:
        return "buried"
    if held is not None or (receipt is not None and due is not None and now < due):
        return "running"
    if due is None:
        return "blocked"
    return "ready" if due <= now else "sleeping"


def sweep(tx: Tx, before: int, place: Place) -> tuple[int, Place | None]:
    """Discard some that finished before an instant, and give the place to go on from, or `None` at the end. [CAT-SWEEP]"""
    rows: list[Place] = tx.execute(sql.SWEEP, (*place, before, _PART)).fetchall()
    count = 0
    for _, workflow in rows:
        if tx.execute(sql.SWEEP_BUSY, (workflow,)).fetchone() is None and _claims.live_until(tx, workflow) is None:
            _records.discard(tx, workflow)
            count += 1
    return count, (rows[-1] if len(rows) == _PART else None)
