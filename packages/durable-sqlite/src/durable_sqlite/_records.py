"""The records of a workflow, inside an open transaction. A refusal comes before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

from durable_core.errors import Fenced
from durable_core.keys import MAX_INBOX, OUTCOME, inbox_key, inbox_number
from durable_sqlite import _claims, _wakeups, sql
from durable_sqlite._coding import Stored
from durable_sqlite._tx import Tx


def load(tx: Tx, workflow: str, skip: int) -> list[tuple[str, Stored]]:
    """Give the records in order, but for the first `skip`. [CKP-LOAD-ORDER] [CKP-LOAD-PREFIX]"""
    return tx.execute(sql.LOAD, (workflow, skip)).fetchall()


def history(tx: Tx, workflow: str) -> list[tuple[str, Stored, int]]:
    """Give the records in order, with their times. [CKP-HISTORY-SAME]"""
    return tx.execute(sql.HISTORY, (workflow,)).fetchall()


def record(tx: Tx, workflow: str, token: int, key: str, value: Stored) -> Stored | None:
    """Write as the holder: `None` when the value is what is stored now, else what is. [CKP-RECORD-ONCE] [CKP-RECORD-FENCED]"""
    claim = _claims.held_by(tx, workflow, token)
    if claim is None:
        raise Fenced(workflow, token, key)
    _claims.seen(tx, workflow, claim)
    return supply(tx, workflow, key, value)


def supply(tx: Tx, workflow: str, key: str, value: Stored) -> Stored | None:
    """Write from outside: `None` when the value is what is stored now, else what is. [CKP-SUPPLY-ONCE]"""
    if key == OUTCOME:  # whoever waits for the workflow, or for its claim, need wait no longer
        tx.ended = True
        _wakeups.uncontended(tx, workflow)
    return write(tx, workflow, key, value)


def write(tx: Tx, workflow: str, key: str, value: Stored) -> Stored | None:
    """Write, whoever asks for it: `None` when the value is what is stored now, else what is. [CKP-RECORD-STILL]"""
    if tx.execute(sql.RECORD, (workflow, key, value, tx.now)).rowcount == 1:
        return None
    stored = recorded(tx, workflow, key)
    assert stored is not None
    return None if stored == value else stored


def recorded(tx: Tx, workflow: str, key: str) -> Stored | None:
    """Give what is stored under a key."""
    row: tuple[Stored] | None = tx.execute(sql.RECORDED, (workflow, key)).fetchone()
    return None if row is None else row[0]


def append(tx: Tx, workflow: str, value: Stored, once: str | None) -> tuple[str, Stored]:
    """Add an entry above every other, or give the one that `once` made. [CKP-APPEND-ABOVE] [CKP-APPEND-ONCE]"""
    if once is not None:
        first: tuple[str, Stored] | None = tx.execute(sql.APPENDED, (workflow, once)).fetchone()
        if first is not None:
            return first
    last: tuple[str | None] = tx.execute(sql.APPEND_LAST, (workflow,)).fetchone()
    number = 1 if last[0] is None else inbox_number(last[0]) + 1
    if number >= MAX_INBOX:
        raise ValueError(f"the inbox of workflow {workflow!r} is full: its last entry is {last[0]!r}, and the limit is 2^53")
    key = inbox_key(number)
    tx.execute(sql.APPEND, (workflow, key, value, tx.now, once))
    return key, value


def discard(tx: Tx, workflow: str) -> int:
    """Forget records and claim, and say how many records there were. [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE]"""
    count = tx.execute(sql.DISCARD, (workflow,)).rowcount
    if tx.execute(sql.DISCARD_CLAIM, (workflow,)).rowcount:
        _wakeups.uncontended(tx, workflow)
    tx.ended = True
    return count


def begin_load(tx: Tx, workflow: str, records: int, size: int) -> Sequence[tuple[str, Stored]] | None:
    """Give the records in order, or `None` for more than `records` of them or `size` characters or bytes. [DUR-BEGIN-FRESH]"""
    rows: list[tuple[str, Stored]] = []
    for row in tx.execute(sql.BEGIN_LOAD, (workflow, records + 1)):
        rows.append(row)
        size -= len(row[1])
        if size < 0:
            return None
    return rows if len(rows) <= records else None
