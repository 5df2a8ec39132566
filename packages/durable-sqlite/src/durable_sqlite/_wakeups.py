"""The wakeups of a queue, inside an open transaction."""

from __future__ import annotations

from typing import NamedTuple

from durable_sqlite import sql
from durable_sqlite._tx import Tx


class Due(NamedTuple):
    """A wakeup that may be given out now; with a receipt it was given out before, and went unanswered."""

    workflow: str
    due: int
    attempt: int
    lapses: int
    receipt: int | None


def make_ready(tx: Tx, workflow: str, queue: str, revive: bool = False) -> None:
    """Let the workflow run. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]"""
    if revive:
        tx.execute(sql.REVIVE, (workflow, queue))
        tx.ended = True
    tx.execute(sql.MAKE_READY, (workflow, queue, tx.now, tx.now))
    tx.ready = True


def next_due(tx: Tx, queue: str) -> int | None:
    """Say when a taker of the queue should look again. [SCH-NEXT-DEEP]"""
    earliest: int | None = tx.execute(sql.NEXT_DUE, (queue,)).fetchall()[0][0]
    return earliest


def due(tx: Tx, queue: str, limit: int) -> list[Due]:
    """Give what may be given out now, the longest due first. [SCH-NEXT-OLDEST] [SCH-NEXT-DEEP]"""
    rows: list[tuple[str, int, int, int, int | None]] = tx.execute(sql.NEXT_READY, (queue, tx.now, limit)).fetchall()
    return [Due(*row) for row in rows]


def take(tx: Tx, queue: str, row: Due, receipt: int, lease: int) -> tuple[int, int]:
    """Give it out under a receipt, and say what its counts are now. [SCH-NEXT-ONE] [SCH-NEXT-LAPSED]"""
    lapsed = 0 if row.receipt is None else 1
    attempt, lapses = row.attempt + lapsed, row.lapses + lapsed
    until = tx.now + lease
    tx.execute(sql.TAKE, (until, until, attempt, lapses, receipt, row.workflow, queue))
    return attempt, lapses


def renew(tx: Tx, workflow: str, queue: str, receipt: int, lease: int) -> None:
    """Keep a delivery for another lease. [SCH-RENEW-SILENT]"""
    until = tx.now + lease
    tx.execute(sql.RENEW_DELIVERY, (until, until, workflow, queue, receipt))


def wake_at(tx: Tx, workflow: str, queue: str, receipt: int, when: int, attempt: int, lapses: int) -> None:
    """Answer, and set the next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-NEWER] [SCH-WAKE-STALE] [SCH-WAKE-CANCELLED]"""
    newer = _newer(tx, workflow, queue, receipt)
    if newer is not None:
        when = min(when, tx.now) if newer else when
        tx.execute(sql.WAKE_AT, (when, when, attempt, lapses, workflow, queue))
        tx.ready = True


def done(tx: Tx, workflow: str, queue: str, receipt: int) -> None:
    """Answer. [SCH-DONE-ANSWERS] [SCH-DONE-NEWER] [SCH-DONE-STALE] [SCH-DONE-CANCELLED]"""
    newer = _newer(tx, workflow, queue, receipt)
    if newer:
        tx.execute(sql.WAKE_AT, (tx.now, tx.now, 1, 0, workflow, queue))
        tx.ready = True
    elif newer is not None:
        tx.execute(sql.DONE, (workflow, queue))


def finish(tx: Tx, workflow: str, queue: str, receipt: int) -> None:
    """Answer for a workflow that has ended, whatever has arrived since. [DUR-FINISH]"""
    if _newer(tx, workflow, queue, receipt) is not None:
        tx.execute(sql.DONE, (workflow, queue))


def bury(tx: Tx, workflow: str, queue: str, receipt: int, reason: str) -> None:
    """Answer, and set the workflow aside. [SCH-BURY-KEEPS] [SCH-BURY-CANCELLED] [SCH-BURY-STALE]"""
    tx.execute(sql.BURY, (reason, workflow, queue, receipt))
    tx.ended = True


def buried(tx: Tx, workflow: str, queue: str) -> str | None:
    """Give the reason why the workflow is buried."""
    rows: list[tuple[str | None]] = tx.execute(sql.BURIED, (workflow, queue)).fetchall()
    return rows[0][0] if rows else None


def cancel(tx: Tx, workflow: str, queue: str) -> None:
    """Forget the wakeup, whatever it is doing. [SCH-CANCEL-ALL]"""
    tx.execute(sql.CANCEL, (workflow, queue))
    tx.ended = True


def contended(tx: Tx, workflow: str, queue: str, lapses: int) -> None:
    """Look again when the claim that was met is released, or lapses. [DUR-BEGIN]"""
    tx.execute(sql.CONTENDED, (lapses, workflow, queue))
    tx.execute(sql.WANTED, (workflow,))


def uncontended(tx: Tx, workflow: str) -> None:
    """Look again now: the claim that was met is gone. [DUR-BEGIN]"""
    tx.execute(sql.UNCONTENDED, (workflow,))
    tx.ready = True


def _newer(tx: Tx, workflow: str, queue: str, receipt: int) -> bool | None:
    """Say whether it was made ready since it was taken, or `None` when the receipt is not current."""
    row: tuple[int] | None = tx.execute(sql.DELIVERY_ROW, (workflow, queue, receipt)).fetchone()
    return None if row is None else bool(row[0])
