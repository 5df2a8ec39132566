"""The transitions across records and wakeups, inside one open transaction: each is one commit. [DUR-CO-COMMIT]"""

from __future__ import annotations

from dataclasses import dataclass

from durable_core.contract import Delivery, Pass, Turn
from durable_core.errors import Fenced
from durable_core.keys import OUTCOME
from durable_sqlite import _claims, _records, _wakeups, sql
from durable_sqlite._coding import Coding, Decoded, Stored
from durable_sqlite._tx import Tx, moment

_ROUNDS = 10  # of looking for more, when what was due had ended or is held
_RECORDS = 1_000  # a turn brings so many records at most,
_SIZE = 1_000_000  # and so many characters or bytes of values


@dataclass(frozen=True, slots=True)
class Taking:
    """What `begin` takes: from which queue, for how long, and how many."""

    queue: str
    lease: int
    budget: int
    limit: int
    coding: Coding


def arrive(tx: Tx, queue: str, workflow: str, key: str, stored: Stored) -> Stored | None:
    """`supply` and `make_ready`. [DUR-ARRIVE]"""
    other = _records.supply(tx, workflow, key, stored)
    _wakeups.make_ready(tx, workflow, queue)
    return other


def deliver(tx: Tx, queue: str, workflow: str, stored: Stored, once: str | None) -> tuple[str, Stored]:
    """`append` and `make_ready`. [DUR-DELIVER]"""
    entry = _records.append(tx, workflow, stored, once)
    _wakeups.make_ready(tx, workflow, queue)
    return entry


def delete(tx: Tx, queue: str, workflow: str) -> int:
    """`cancel` and `discard`. [DUR-DELETE]"""
    _wakeups.cancel(tx, workflow, queue)
    return _records.discard(tx, workflow)


def begin(tx: Tx, taking: Taking) -> list[Turn] | None:
    """Take, claim and load; `None` when there is nothing to begin. [DUR-BEGIN] [DUR-BEGIN-FRESH]"""
    turns: list[Turn] = []
    for _ in range(_ROUNDS):
        rows = _wakeups.due(tx, taking.queue, taking.limit - len(turns))
        for row in rows:
            turn = _turn(tx, taking, row)
            if turn is not None:
                turns.append(turn)
        if not rows or len(turns) == taking.limit:
            break
    return turns or None


def _turn(tx: Tx, taking: Taking, row: _wakeups.Due) -> Turn | None:
    workflow = row.workflow
    if tx.execute(sql.FINISHED, (workflow,)).fetchone() is not None:
        _wakeups.cancel(tx, workflow, taking.queue)
        return None
    lapses = _claims.live_until(tx, workflow)
    if lapses is not None:
        _wakeups.contended(tx, workflow, taking.queue, lapses)
        return None
    number = _claims.number(tx)
    _claims.grant(tx, workflow, number, taking.budget, taking.lease)
    attempt, lapsed = _wakeups.take(tx, taking.queue, row, number, taking.lease)
    rows = _records.begin_load(tx, workflow, _RECORDS, _SIZE)
    return Turn(
        Pass(workflow, number, moment(tx.now)),
        Delivery(workflow, str(number), attempt, lapsed, moment(row.due)),
        None if rows is None else Decoded(taking.coding, workflow, rows),
    )


def renew(tx: Tx, queue: str, holder: Pass, workflow: str, receipt: int, lease: int) -> bool:
    """Renew the claim, then the delivery. [DUR-KEEP]"""
    if not _claims.renew(tx, holder.workflow, holder.token, lease):
        return False
    _wakeups.renew(tx, workflow, queue, receipt, lease)
    return True


def finish(tx: Tx, queue: str, holder: Pass, workflow: str, receipt: int, stored: Stored) -> Stored | None:
    """Record the outcome, release, answer. [DUR-FINISH] [DUR-TURN-FENCED]"""
    claim = _claims.held_by(tx, holder.workflow, holder.token)
    if claim is None or not (claim.held or _records.recorded(tx, holder.workflow, OUTCOME) is not None):
        raise Fenced(holder.workflow, holder.token, OUTCOME)
    other = _records.write(tx, holder.workflow, OUTCOME, stored)
    if claim.held:
        _claims.released(tx, holder.workflow, claim)
    _wakeups.finish(tx, workflow, queue, receipt)
    tx.ended = True
    return other


def pause(tx: Tx, queue: str, holder: Pass, workflow: str, receipt: int, due: int | None) -> None:
    """Release and answer, with the next wakeup when there is a due time. [DUR-PAUSE]"""
    _claims.release(tx, holder.workflow, holder.token)
    if due is None:
        _wakeups.done(tx, workflow, queue, receipt)
    else:
        _wakeups.wake_at(tx, workflow, queue, receipt, due, 1, 0)


def again(tx: Tx, queue: str, holder: Pass, workflow: str, receipt: int, delay: int, attempt: int, lapses: int) -> None:
    """Release and answer, with a wakeup after `delay` that has these counts. [DUR-FAIL] [DUR-HAND-BACK]"""
    _claims.release(tx, holder.workflow, holder.token)
    _wakeups.wake_at(tx, workflow, queue, receipt, tx.now + delay, attempt, lapses)


def bury(tx: Tx, queue: str, holder: Pass, workflow: str, receipt: int, reason: str) -> None:
    """Release, and set the workflow aside. [DUR-FAIL]"""
    _claims.release(tx, holder.workflow, holder.token)
    _wakeups.bury(tx, workflow, queue, receipt, reason)


def result(tx: Tx, queue: str, workflow: str) -> tuple[Stored | None, str | None]:
    """Give the outcome, and the reason why the workflow is buried. [DUR-RESULT]"""
    row: tuple[Stored | None, str | None] = tx.execute(sql.RESULT, (workflow, workflow, queue)).fetchall()[0]
    return row
