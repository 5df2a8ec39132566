"""What operators see, and the sweep, in parts that leave others room."""

from __future__ import annotations

from datetime import UTC, datetime

from durable_core.contract import Listed, State
from durable_postgres import sql
from durable_postgres._pool import Connections

_PART = 200  # workflows that are looked at, or discarded, at once
_FIRST = datetime.min.replace(tzinfo=UTC)


async def workflows(
    connections: Connections, queue: str, prefix: str, state: State | None, after: str | None, limit: int
) -> list[Listed]:
    """Give a page. [CAT-LIST]"""
    page: list[Listed] = []
    current = after or ""
    while len(page) < limit:
        rows = await connections.call(sql.WORKFLOWS, {"after": current, "prefix": prefix, "part": _PART})
        found = [str(row[0]) for row in rows if str(row[0]).startswith(prefix)]
        if not found:
            break
        for row in await connections.call(sql.WORKFLOWS_LISTED, {"workflows": found, "queue": queue}):
            listed = _listed(row)
            if listed is not None and state in (None, listed.state) and len(page) < limit:
                page.append(listed)
        if len(found) < _PART:
            break
        current = found[-1]
    return page


def _listed(row: tuple[object, ...]) -> Listed | None:
    workflow, now, records, first, last, finished, lapses, due, attempt, taken, reason, lease = row
    if not records and lapses is None and due is None:
        return None
    assert isinstance(workflow, str)
    assert isinstance(now, datetime)
    assert isinstance(records, int)
    out = bool(taken) and isinstance(lease, datetime) and now < lease
    return Listed(
        workflow=workflow,
        state=_state(now, bool(finished), reason is not None, lapses is not None or out, due),
        records=records,
        first=_moment(first),
        last=_moment(last),
        due=None if reason is not None else _moment(due),
        held_until=_moment(lapses),
        attempt=attempt if isinstance(attempt, int) else None,
        reason=reason if isinstance(reason, str) else None,
    )


def _state(now: datetime, finished: bool, buried: bool, running: bool, due: object) -> State:
    """Give the first that applies. A delivery that is out counts as running: somebody is at it."""
    if finished:
        return "finished"
    if buried:
        return "buried"
    if running:
        return "running"
    if not isinstance(due, datetime):
        return "blocked"
    return "ready" if due <= now else "sleeping"


def _moment(value: object) -> datetime | None:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else None


async def sweep(connections: Connections, before: datetime) -> int:
    """Discard what finished before an instant. [CAT-SWEEP]"""
    count = 0
    place: tuple[object, object] = _FIRST, ""
    while True:
        rows = await connections.call(sql.SWEEP, (before, *place, _PART))
        count += sum(1 for row in rows if row[2])
        if len(rows) < _PART:
            return count
        place = _moment(rows[-1][0]), rows[-1][1]
