"""The contract as a pure machine: the state of one workflow and the time in, its next state and the answer out.

Each function is a method of a protocol and has its name; where protocols share one, the scheduler's is `renew_delivery` and the
pair's `renew_turn`. Values are encodings, compared as encodings. What the store chooses (a token, a receipt, the number of an
entry) is an argument, so that the machine can also follow the choices of a store that it is compared with. Nothing here awaits,
reads a clock or changes its argument. Arguments are taken to be valid, see `durable_core.keys`.

A wakeup is due by time alone. Where the claim of its workflow is live, `begin` leaves it as it is: so it comes back with its
counts unchanged when the claim is released or lapses. [DUR-BEGIN]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, TypeAlias

from durable_core._clock import later
from durable_core._reference_records import Record, Records
from durable_core.contract import Delivery, Entry, Failed, Finished, Listed, Pass, Recorded, Torn, Turn, Written
from durable_core.contract import State as ListedState
from durable_core.keys import MAX_INBOX, OUTCOME, inbox_key

_ZERO = timedelta(0)


class Refusal(Enum):
    """Why a write was refused."""

    FENCED = "fenced"


FENCED: Final = Refusal.FENCED
Answer: TypeAlias = Recorded | Torn | Refusal
"""Of a write: what the store holds, or that the key is torn, or that the pass is fenced; the last two changed nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The grant of a pass: it lapses at the earlier of `seen + alive` and `until`. [CKP-CLAIM-LAPSE]"""

    token: int
    held: bool
    until: datetime
    alive: timedelta
    seen: datetime

    @property
    def lapses_at(self) -> datetime:
        """When it lapses, should nothing more be heard."""
        return min(later(self.seen, self.alive), self.until)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The checkpointer's half; `issued` is the last token of this workflow, which outlives everything."""

    records: Records = Records()  # noqa: RUF009 - a value
    claim: Claim | None = None
    issued: int = 0


@dataclass(frozen=True, slots=True)
class Wakeup:
    """The scheduler's half: the right to run from `due` on; or, with a receipt, taken, and due again then unless answered.

    `newer` says that something made it ready since it was taken or buried; `reason` is there when it is buried.
    """

    due: datetime
    attempt: int = 1
    lapses: int = 0
    receipt: str | None = None
    newer: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """Everything there is to know about one workflow in one queue."""

    workflow: str
    ledger: Ledger = Ledger()
    wakeup: Wakeup | None = None


# ------------------------------------------------------------------------------------------------------- Checkpointer


def load(state: State, skip: int = 0) -> Mapping[str, object]:
    """Give the encodings in first-recorded order. [CKP-LOAD-ORDER]"""
    records = state.ledger.records
    return {record.key: record.value for record in records.since(skip)} if skip else records


def history(state: State) -> dict[str, Written]:
    """Give the encodings and their times. [CKP-HISTORY-SAME]"""
    return {record.key: Written(record.value, record.at) for record in state.ledger.records.since(0)}


def ask(state: State, holder: Pass, key: str) -> Answer | None:
    """Say how a write by the holder would be refused or lose, or `None` when the key is free. [CKP-RECORD-FENCED]"""
    if _claim_of(state, holder) is None:
        return FENCED
    return _held(state, key, None)


def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
    """Write as the holder. [CKP-RECORD-ONCE] [CKP-RECORD-FENCED] [CKP-RECORD-LAPSED] [CKP-RECORD-LIVE]"""
    claim = _claim_of(state, holder)
    if claim is None:
        return state, FENCED
    answer = _held(state, key, encoded)
    if isinstance(answer, Torn):
        return state, answer
    if claim.held:
        state = _with_claim(state, Claim(claim.token, True, claim.until, claim.alive, max(claim.seen, now)))
    if answer is not None:
        return state, answer
    return _with_record(state, Record(key, encoded, now)), Recorded(encoded, True)


def recall(state: State, now: datetime, holder: Pass, key: str) -> tuple[State, Answer | None]:
    """Say what `transact` answers without its effect, or `None` when it is to run. [CKP-TRANSACT-RECORDED] [CKP-TRANSACT-LIVE]"""
    answer = ask(state, holder, key)
    return record(state, now, holder, key, answer.value) if isinstance(answer, Recorded) else (state, answer)


def transact(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
    """Commit an effect that gave `encoded`; `first` says whether it counts, or is to be undone. [CKP-TRANSACT-ATOMIC]"""
    free = key not in state.ledger.records
    state, answer = record(state, now, holder, key, encoded)
    return state, Recorded(answer.value, free) if isinstance(answer, Recorded) else answer


def tear(state: State, now: datetime, holder: Pass, key: str, reason: str) -> tuple[State, Answer]:
    """Mark a key whose effect failed after it had written, on a store that does not undo. [CKP-TRANSACT-TORN]"""
    answer = ask(state, holder, key)
    if answer is not None:
        return state, answer
    torn = Torn(reason)
    return _with_record(state, Record(key, torn, now)), torn


def mend(state: State, key: str, encoded: object) -> tuple[State, bool]:
    """Replace a torn mark by what was found to be true. [CKP-TRANSACT-TORN]"""
    records, claim, issued = state.ledger.records, state.ledger.claim, state.ledger.issued
    if not isinstance(records.get(key), Torn):
        return state, False
    return State(state.workflow, Ledger(records.with_value(key, encoded), claim, issued), state.wakeup), True


def supply(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
    """Write from outside any pass. [CKP-SUPPLY-FREE] [CKP-SUPPLY-ONCE]"""
    answer = _held(state, key, encoded)
    if answer is not None:
        return state, answer
    return _with_record(state, Record(key, encoded, now)), Recorded(encoded, True)


def append(
    state: State, now: datetime, encoded: object, once: str | None = None, number: int | None = None
) -> tuple[State, Entry[object]]:
    """Add an entry, under a number above every one there; `number` is the store's choice. [CKP-APPEND-ABOVE] [CKP-APPEND-ONCE]

    Raises: `ValueError` when there is no number left, or the store chose one that is not above.
    """
    records = state.ledger.records
    sent = None if once is None else records.sent(once)
    if sent is not None:
        return state, Entry(sent.key, sent.value)
    number = records.inbox + 1 if number is None else number
    if not records.inbox < number < MAX_INBOX:
        raise ValueError(
            f"no entry {number} of workflow {state.workflow!r}: an entry's number is above {records.inbox} and below {MAX_INBOX}"
        )
    key = inbox_key(number)
    return _with_record(state, Record(key, encoded, now, once)), Entry(key, encoded)


def claim(
    state: State, now: datetime, budget: timedelta, alive: timedelta, token: int | None = None
) -> tuple[State, Pass | None]:
    """Grant a pass unless one is live; `token` is the store's choice. [CKP-CLAIM-ONE] [CKP-CLAIM-RISING]

    Raises: `ValueError` when the store chose a token that does not rise.
    """
    if held_until(state, now) is not None:
        return state, None
    issued = state.ledger.issued
    token = issued + 1 if token is None else token
    if token <= issued:
        raise ValueError(f"token {token} of workflow {state.workflow!r} does not rise above {issued}")
    granted = Claim(token, True, later(now, budget), alive, now)
    return State(state.workflow, Ledger(state.ledger.records, granted, token), state.wakeup), Pass(state.workflow, token, now)


def extend(state: State, now: datetime, holder: Pass, budget: timedelta, alive: timedelta) -> tuple[State, bool]:
    """Grant more budget. [CKP-EXTEND-GRANT] [CKP-EXTEND-LAPSED] [CKP-HOLD-LOST]"""
    claim = _claim_of(state, holder)
    if claim is None or not claim.held:
        return state, False
    until = max(claim.until, later(now, budget))
    return _with_claim(state, Claim(claim.token, True, until, alive, max(claim.seen, now))), True


def renew(state: State, now: datetime, holder: Pass, alive: timedelta) -> tuple[State, bool]:
    """Take a sign of life. [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET] [CKP-HOLD-LOST]"""
    claim = _claim_of(state, holder)
    if claim is None or not claim.held or now >= claim.until:
        return state, False
    return _with_claim(state, Claim(claim.token, True, claim.until, alive, max(claim.seen, now))), True


def release(state: State, holder: Pass) -> State:
    """Take the claim back; the fence stays. [CKP-RELEASE-FREE] [CKP-RELEASE-FINAL]"""
    claim = _claim_of(state, holder)
    if claim is None or not claim.held:
        return state
    return _with_claim(state, Claim(claim.token, False, claim.until, claim.alive, claim.seen))


def discard(state: State) -> tuple[State, int]:
    """Forget the records, and fence whoever holds the claim. [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE]"""
    return State(state.workflow, Ledger(issued=state.ledger.issued), state.wakeup), len(state.ledger.records)


def held_until(state: State, now: datetime) -> datetime | None:
    """Give when the live claim lapses, or `None` without one. [CKP-CLAIM-LAPSE]"""
    claim = state.ledger.claim
    if claim is None or not claim.held:
        return None
    lapses_at = claim.lapses_at
    return lapses_at if now < lapses_at else None


# ---------------------------------------------------------------------------------------------------------- Scheduler


def make_ready(state: State, now: datetime, revive: bool = False) -> State:
    """Let the workflow run. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]"""
    wakeup = state.wakeup
    if wakeup is None or (wakeup.reason is not None and revive):
        return _with_wakeup(state, Wakeup(now))
    if wakeup.reason is None and wakeup.receipt is None:
        return state if wakeup.due <= now else _with_wakeup(state, Wakeup(now, wakeup.attempt, wakeup.lapses))
    newer = Wakeup(wakeup.due, wakeup.attempt, wakeup.lapses, wakeup.receipt, True, wakeup.reason)
    return state if wakeup.newer else _with_wakeup(state, newer)


def due_at(state: State) -> datetime | None:
    """Give when the workflow may next be given out, or `None`: never by the mere passing of time."""
    wakeup = state.wakeup
    return None if wakeup is None or wakeup.reason is not None else wakeup.due


def next_ready(state: State, now: datetime, lease: timedelta, receipt: str) -> tuple[State, Delivery | None]:
    """Take the wakeup if it is due; `receipt` is the store's choice. [SCH-NEXT-ONE] [SCH-NEXT-LAPSED]"""
    wakeup = state.wakeup
    if wakeup is None or wakeup.reason is not None or now < wakeup.due:
        return state, None
    lapsed = 0 if wakeup.receipt is None else 1
    attempt, lapses = wakeup.attempt + lapsed, wakeup.lapses + lapsed
    taken = Wakeup(later(now, lease), attempt, lapses, receipt)
    return _with_wakeup(state, taken), Delivery(state.workflow, receipt, attempt, lapses, wakeup.due)


def renew_delivery(state: State, now: datetime, delivery: Delivery, lease: timedelta) -> tuple[State, Delivery]:
    """Keep a delivery for another lease. [SCH-RENEW-NAME] [SCH-RENEW-SILENT]"""
    wakeup = _taken(state, delivery)
    if wakeup is None:
        return state, delivery
    due = max(wakeup.due, later(now, lease))
    kept = Wakeup(due, wakeup.attempt, wakeup.lapses, wakeup.receipt, wakeup.newer)
    return _with_wakeup(state, kept), delivery


def wake_at(state: State, now: datetime, delivery: Delivery, when: datetime, attempt: int = 1, lapses: int = 0) -> State:
    """Answer, and set the next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-NEWER] [SCH-WAKE-STALE]"""
    wakeup = _taken(state, delivery)
    if wakeup is None:
        return state
    return _with_wakeup(state, Wakeup(min(when, now) if wakeup.newer else when, attempt, lapses))


def done(state: State, now: datetime, delivery: Delivery) -> State:
    """Answer. [SCH-DONE-ANSWERS] [SCH-DONE-NEWER] [SCH-DONE-STALE]"""
    wakeup = _taken(state, delivery)
    if wakeup is None:
        return state
    return _with_wakeup(state, Wakeup(now) if wakeup.newer else None)


def bury(state: State, delivery: Delivery, reason: str) -> State:
    """Answer, and set the workflow aside. [SCH-BURY-KEEPS] [SCH-BURY-STALE]"""
    wakeup = _taken(state, delivery)
    if wakeup is None:
        return state
    return _with_wakeup(state, Wakeup(wakeup.due, wakeup.attempt, wakeup.lapses, None, wakeup.newer, reason))


def buried(state: State) -> str | None:
    """Give the reason why the workflow is buried."""
    return None if state.wakeup is None else state.wakeup.reason


def cancel(state: State) -> State:
    """Forget the wakeup. [SCH-CANCEL-ALL]"""
    return _with_wakeup(state, None)


# ------------------------------------------------------------------------------------------------------------ Durable


def arrive(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
    """`supply`, then `make_ready`, unless the key is torn. [DUR-ARRIVE]"""
    state, answer = supply(state, now, key, encoded)
    return (state if isinstance(answer, Torn) else make_ready(state, now)), answer


def deliver(
    state: State, now: datetime, encoded: object, once: str | None = None, number: int | None = None
) -> tuple[State, Entry[object]]:
    """`append`, then `make_ready`. [DUR-DELIVER]"""
    state, entry = append(state, now, encoded, once, number)
    return make_ready(state, now), entry


def delete(state: State) -> tuple[State, int]:
    """`cancel`, then `discard`. [DUR-DELETE]"""
    return discard(cancel(state))


def begin(
    state: State, now: datetime, lease: timedelta, budget: timedelta, receipt: str, token: int | None = None
) -> tuple[State, Turn | None]:
    """Take the wakeup if it is due, claim, load; a finished workflow is answered for. [DUR-BEGIN] [DUR-BEGIN-FRESH]"""
    due = due_at(state)
    if due is None or now < due:
        return state, None
    if OUTCOME in state.ledger.records:
        return cancel(state), None
    state, holder = claim(state, now, budget, lease, token)
    if holder is None:
        return state, None
    state, delivery = next_ready(state, now, lease, receipt)
    assert delivery is not None
    return state, Turn(holder, delivery, state.ledger.records)


def renew_turn(state: State, now: datetime, turn: Turn, lease: timedelta) -> tuple[State, Turn | None]:
    """Renew the claim, then the delivery. [DUR-KEEP]"""
    state, held = renew(state, now, turn.holder, lease)
    if not held:
        return state, None
    state, delivery = renew_delivery(state, now, turn.delivery, lease)
    return state, Turn(turn.holder, delivery, turn.records)


def finish(state: State, now: datetime, turn: Turn, encoded: object) -> tuple[State, Answer]:
    """Record the outcome, release, answer; a wakeup that came meanwhile goes too. [DUR-FINISH] [DUR-TURN-FENCED]"""
    claim = _claim_of(state, turn.holder)
    if claim is None or not (claim.held or OUTCOME in state.ledger.records):
        return state, FENCED
    written, answer = record(state, now, turn.holder, OUTCOME, encoded)
    if not isinstance(answer, Recorded):
        return state, answer
    released = release(written, turn.holder)
    return (released if _taken(released, turn.delivery) is None else cancel(released)), answer


def pause(state: State, now: datetime, turn: Turn, due: datetime | None) -> State:
    """Release and answer, with the next wakeup when there is a due time. [DUR-PAUSE]"""
    state = release(state, turn.holder)
    return done(state, now, turn.delivery) if due is None else wake_at(state, now, turn.delivery, due)


def fail(state: State, now: datetime, turn: Turn, reason: str, again_in: timedelta | None) -> State:
    """Release, and answer with the attempt one higher, or bury. [DUR-FAIL]"""
    state = release(state, turn.holder)
    if again_in is None:
        return bury(state, turn.delivery, reason)
    return wake_at(state, now, turn.delivery, later(now, again_in), turn.delivery.attempt + 1)


def hand_back(state: State, now: datetime, turn: Turn, again_in: timedelta) -> State:
    """Release, and answer with the counts unchanged. [DUR-HAND-BACK]"""
    state = release(state, turn.holder)
    return wake_at(state, now, turn.delivery, later(now, again_in), turn.delivery.attempt, turn.delivery.lapses)


def result(state: State) -> Finished[object] | Failed | None:
    """Give how the workflow ended. [DUR-RESULT]"""
    records = state.ledger.records
    if OUTCOME in records:
        return Finished(records[OUTCOME])
    reason = buried(state)
    return None if reason is None else Failed(reason)


# ------------------------------------------------------------------------------------------------------------ Catalog


def listed(state: State, now: datetime) -> Listed | None:
    """Give the workflow as an operator sees it, or `None` when there is nothing. [CAT-LIST]"""
    written = state.ledger.records.since(0)
    held, wakeup = held_until(state, now), state.wakeup
    if not written and held is None and wakeup is None:
        return None
    return Listed(
        workflow=state.workflow,
        state=_listed_state(state, now, held),
        records=len(written),
        first=written[0].at if written else None,
        last=written[-1].at if written else None,
        due=due_at(state),
        held_until=held,
        attempt=None if wakeup is None else wakeup.attempt,
        reason=buried(state),
    )


def workflows(
    states: Iterable[State],
    now: datetime,
    prefix: str = "",
    state: ListedState | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Sequence[Listed]:
    """Give a page, in the order of the ids. [CAT-LIST]"""
    wanted = (one for one in states if one.workflow.startswith(prefix) and (after is None or one.workflow > after))
    page: list[Listed] = []
    for one in sorted(wanted, key=lambda one: one.workflow):
        entry = listed(one, now)
        if entry is not None and state in (None, entry.state):
            page.append(entry)
        if len(page) == limit:
            break
    return page


def sweep(state: State, now: datetime, finished_before: datetime) -> tuple[State, bool]:
    """Discard a workflow that finished before an instant, and that nobody holds or wakes. [CAT-SWEEP]"""
    records = state.ledger.records
    if OUTCOME not in records or state.wakeup is not None or held_until(state, now) is not None:
        return state, False
    if records.record(OUTCOME).at >= finished_before:
        return state, False
    return discard(state)[0], True


# ------------------------------------------------------------------------------------------------------------ private


def _claim_of(state: State, holder: Pass) -> Claim | None:
    claim = state.ledger.claim
    return claim if claim is not None and claim.token == holder.token else None


def _held(state: State, key: str, encoded: object) -> Recorded | Torn | None:
    records = state.ledger.records
    if key not in records:
        return None
    stored = records[key]
    return stored if isinstance(stored, Torn) else Recorded(stored, stored == encoded)


def _taken(state: State, delivery: Delivery) -> Wakeup | None:
    wakeup = state.wakeup
    return wakeup if wakeup is not None and wakeup.receipt == delivery.receipt else None


def _with_record(state: State, record: Record) -> State:
    ledger = state.ledger
    return State(state.workflow, Ledger(ledger.records.with_record(record), ledger.claim, ledger.issued), state.wakeup)


def _with_claim(state: State, claim: Claim) -> State:
    ledger = state.ledger
    return State(state.workflow, Ledger(ledger.records, claim, ledger.issued), state.wakeup)


def _with_wakeup(state: State, wakeup: Wakeup | None) -> State:
    return State(state.workflow, state.ledger, wakeup)


def _listed_state(state: State, now: datetime, held: datetime | None) -> ListedState:
    """The first that applies. A delivery that is out counts as running: somebody is at it."""
    if OUTCOME in state.ledger.records:
        return "finished"
    wakeup = state.wakeup
    if wakeup is not None and wakeup.reason is not None:
        return "buried"
    if held is not None or (wakeup is not None and wakeup.receipt is not None and now < wakeup.due):
        return "running"
    if wakeup is None:
        return "blocked"
    return "ready" if wakeup.due <= now else "sleeping"
