"""THE CONTRACT: what a store owes, clause by clause, and the values that cross the interface.

A clause is a line that begins with its id in brackets. Ids are never reused or renamed. Four rules hold for every method here.

[ANY-CLOCK] The store's clock is the only clock: durations cross the interface, and where an instant must, it is the store's.
    The engine's clock within a pass is `Pass.at` plus monotonic time since the claim was granted.
[ANY-REPEAT] Every write MUST be safe to repeat. Repeated by the store's own client after a lost reply, it gives the same
    answer. Repeated by the caller, it leaves the same state; only `append` and `deliver` without `once` may add a second entry,
    `discard` and `delete` answer what this call removed, `make_ready` may cause one delivery more, and a second `claim` is
    refused until the window ends.
[ANY-VALID] Bad input MUST be refused with `ValueError` before anything is done, with one verdict for all stores: see
    `durable_core.keys`.
[ANY-POSITIONAL] Parameters are positional-only and attributes are properties, so that a store may use names of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, Literal, Never, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Encoded = TypeVar("Encoded")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    E_contra = DefaultedTypeVar("E_contra", contravariant=True, default=Never)
elif sys.version_info >= (3, 13):
    E_contra = TypeVar("E_contra", contravariant=True, default=Never)
else:  # a default says something to type checkers only, while a class has no other parameter
    E_contra = TypeVar("E_contra", contravariant=True)

Word: TypeAlias = Literal["yes", "no", "unknown"]
State: TypeAlias = Literal["ready", "running", "sleeping", "blocked", "buried", "finished"]


@dataclass(frozen=True, slots=True)
class Pass:
    """One granted attempt to advance a workflow: the holder of its claim.

    `token` is the fencing number; `at` is the store's clock when the claim was granted.
    """

    workflow: str
    token: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Delivery:
    """A wakeup that was taken and not yet answered.

    `receipt` names it for as long as it lives; `attempt` counts from one; `lapses` is how often in a row it was given out and
    went unanswered; `due` is when it might first be given out.
    """

    workflow: str
    receipt: str
    attempt: int
    lapses: int
    due: datetime


@dataclass(frozen=True, slots=True)
class Turn:
    """A delivery and the pass that was claimed for it.

    `records` decodes on access; `None` means that the history is large and the pass loads it.
    """

    holder: Pass
    delivery: Delivery
    records: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the store holds under a key after a write, and whether it is this write's own encoding."""

    value: object
    first: bool


@dataclass(frozen=True, slots=True)
class Entry(Generic[T_co]):
    """A message in a workflow's inbox, under the key that the store chose."""

    key: str
    value: T_co


@dataclass(frozen=True, slots=True)
class Written:
    """A record's value, and the store's clock when it was written (UTC)."""

    value: object
    at: datetime


@dataclass(frozen=True, slots=True)
class Torn:
    """Stands in a record's place where an effect failed after it had written and the store cannot undo."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finished(Generic[T_co]):
    """The workflow has an outcome."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Failed:
    """The workflow was buried, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Description:
    """What a store is, and what it promises as it is configured now.

    `survives_*` say what an acknowledged write survives: the kill of the server's (or, embedded, the application's) process, a
    power cut, a failover. `poll` is how long a wakeup from another process may go unnoticed; zero where it is announced.
    """

    product: str
    version: str
    survives_kill: Word
    survives_power_cut: Word
    survives_failover: Word
    transacts: bool
    undoes: bool
    interleaves: bool
    co_commits: bool
    joins: bool
    lists: bool
    poll: timedelta


@dataclass(frozen=True, slots=True)
class Listed:
    """One workflow as an operator sees it. What does not apply is `None`."""

    workflow: str
    state: State
    records: int
    first: datetime | None
    last: datetime | None
    due: datetime | None
    held_until: datetime | None
    attempt: int | None
    reason: str | None


class CheckpointCodec(Protocol[Encoded]):
    """Turns a step's result into what the store holds, and back.

    [CDC-ROUND] `decode(encode(x))` MUST equal x, type for type at every level, for every value that the codec documents as
        carried.
    [CDC-SAME] Equal values of the same types MUST encode equal, whatever the order of insertion.
    [CDC-REFUSE] What the codec cannot carry it MUST refuse when encoding, with `NotEncodable` naming the part: never a silent
        change.
    """

    def encode(self, value: object, /) -> Encoded:
        """Give what the store is to hold. Raises: `NotEncodable`."""
        ...

    def decode(self, encoded: Encoded, /) -> object:
        """Give the value that was encoded; any exception says that it cannot."""
        ...


class Checkpointer(Protocol[E_contra]):
    """Keeps a workflow's records, and lets one pass at a time write them.

    [CKP-KEY-RESERVED] The methods here MUST accept reserved keys (an `inbox:` key only with twenty digits below 2^53), and
        `load` and `history` MUST show them in place; `Run`, `arrive` and joined clients refuse them with `ReservedKey`.
    """

    def roundtrip(self, value: object, /) -> object:
        """Give `decode(encode(value))`, or raise `NotEncodable`, without touching the store."""
        ...

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        """Give every record of the workflow, decoded, but for the first `skip`.

        [CKP-LOAD-EMPTY] Without records it MUST be an empty dict, and reading MUST create nothing.
        [CKP-LOAD-ORDER] The order MUST be that in which each key was first recorded, by whichever method; `skip` leaves out
            that many from the front.
        [CKP-LOAD-PREFIX] Until a discard (and but for a `mend`), what any load returned MUST be a prefix of what every later load
            returns: the writers of one workflow commit one after the other.
        [CKP-LOAD-CODEC] Every value but a `Torn` MUST have crossed the codec both ways; no object comes back by identity.
        [CKP-LOAD-ISOLATED] No id, however strange, MUST see or disturb another id's records, claim or wakeups.
        [CKP-LOAD-SHARED] A second instance, a second process and an instance opened after a restart MUST see the same.

        Raises: `NotParsed` when a stored value cannot be decoded.
        """
        ...

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        """Record a value as the holder of the claim, and give what the store holds under the key.

        [CKP-RECORD-DURABLE] The record MUST be durable before the call returns, as far as `describe()` says.
        [CKP-RECORD-ONCE] The first writer MUST win, and winner and loser MUST both get the stored value, in every interleaving.
        [CKP-RECORD-FIRST] `first` MUST be true exactly when what is stored is this call's encoding.
        [CKP-RECORD-FENCED] A token other than the last one issued, or whose claim the store has lost, MUST be refused with
            `Fenced` and change nothing: no record, no position, no liveness.
        [CKP-RECORD-LAPSED] A claim that lapsed and that nobody has taken since MUST still be able to write.
        [CKP-RECORD-LIVE] An accepted write MUST count as a sign of life, never past the budget and never after the release. It
            may be left out while the last one is younger than a third of the window.
        [CKP-RECORD-STILL] A losing or repeated write MUST move neither value nor position nor time.
        [CKP-RECORD-CONCURRENT] Concurrent records of one pass MUST all land, none twice. Grouping is the store's business:
            nothing is acknowledged before its commit, a failing item or a cancelled caller disturbs no other, and while an open
            transaction of the application holds one workflow, records of others through the same instance return.
        [CKP-RECORD-REFUSED] A value that the codec refuses MUST fail before anything is written, naming workflow and key; the
            claim stays usable.

        Raises: `Fenced`, `NotEncodable`, `EffectTorn`.
        """
        ...

    async def transact(self, holder: Pass, key: str, effect: E_contra, /) -> object:
        """Apply an effect and record what it gives in one commit, and give what the store holds under the key.

        [CKP-TRANSACT-ONCE] Across all passes and all crashes the effect MUST be applied exactly once.
        [CKP-TRANSACT-ATOMIC] Effect and record MUST land together or not at all: also when the effect raises (its own error
            passes through), when its result cannot be encoded, when a process dies, when the caller is cancelled. Exception:
            CKP-TRANSACT-TORN.
        [CKP-TRANSACT-RECORDED] The fence MUST be asked first; then, if the key is recorded, its value returns and the effect
            does not run.
        [CKP-TRANSACT-FENCED] A pass superseded before or, where effects interleave, while the effect runs MUST get `Fenced`
            with nothing applied. Where they interleave, no lock of the store is held while the effect runs.
        [CKP-TRANSACT-SUPPLIED] When a value is supplied under the key meanwhile the first writer MUST win; if it is the supply,
            the effect is undone.
        [CKP-TRANSACT-OWN] The effect MUST NOT be able to commit, end or outlive the transaction it was handed, and an attempt
            MUST NOT be durable; a database error that it swallowed MUST NOT become a record.
        [CKP-TRANSACT-TORN] Where the store does not undo, an error or a refused result before the first write MUST leave
            nothing; after it, the key MUST be torn: `Torn` takes key, position and time, and every later write or step under it
            raises `EffectTorn`.
        [CKP-TRANSACT-LIVE] As CKP-RECORD-LIVE.
        [CKP-TRANSACT-NEVER] A store with nothing to offer MUST refuse with `Misconfigured`, writing nothing.

        Raises: `Fenced`, `NotEncodable`, `EffectTorn`, `Misconfigured`, and whatever the effect raises.
        """
        ...

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value from outside any pass.

        [CKP-SUPPLY-FREE] It MUST need no claim and MUST NOT be held up by a pass, not even inside a long `transact` where
            effects interleave.
        [CKP-SUPPLY-ONCE] The first writer MUST win against `record`, `transact` and other supplies; `first` as in
            CKP-RECORD-FIRST.
        [CKP-SUPPLY-DURABLE] As CKP-RECORD-DURABLE.

        Raises: `NotEncodable`, `EffectTorn`.
        """
        ...

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the workflow's inbox.

        [CKP-APPEND-KEY] The key MUST be `inbox:` and twenty digits, the number below 2^53.
        [CKP-APPEND-FREE] As CKP-SUPPLY-FREE.
        [CKP-APPEND-DISTINCT] Concurrent appends MUST get distinct keys, and none is lost.
        [CKP-APPEND-SORTED] Keys MUST sort in append order, which is their order in `load`; an append that starts after another
            returned sorts after it.
        [CKP-APPEND-ABOVE] A new entry MUST sort above every inbox key already there, however it came.
        [CKP-APPEND-ONCE] With `once` a repeat MUST return the first entry and add none, as long as the workflow has records.
            The id is kept beside the entry and is no record.
        [CKP-APPEND-REPEAT] A repeat by the store's own client MUST NOT make a second entry.
        [CKP-APPEND-RECORD] The entry MUST be an ordinary record: `load` and `history` show it in place, and nothing consumes it.
        [CKP-APPEND-CURSOR] A reader that asks for keys later than the last one it saw MUST NOT miss an entry.

        Raises: `NotEncodable`.
        """
        ...

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        """Take the workflow for one pass, or give `None` while another pass holds it.

        [CKP-CLAIM-ONE] At most one pass of a workflow MUST be live, for any number of claimants in any number of processes.
        [CKP-CLAIM-RISING] Tokens MUST rise strictly per workflow, for ever: across release, lapse, discard, restart, and the
            loss of the claim's own storage.
        [CKP-CLAIM-REFUSED] Held by another: `None`, after waiting for no more than commits in flight, and nothing changed.
        [CKP-CLAIM-LAPSE] A claim MUST lapse at the earlier of the last sign of life plus `alive` and the end of its budget.
        [CKP-CLAIM-CLOCK] By the store's clock, read when the decision is made.
        [CKP-CLAIM-KEPT] A claim MUST end any time to live that a finish or discard had set.
        [CKP-CLAIM-REPEAT] A claim repeated by the store's own client MUST give the same token, not a refusal.
        """
        ...

    async def extend(self, holder: Pass, budget: timedelta, alive: timedelta, /) -> bool:
        """Grant the pass `budget` from now; `False` when it no longer holds the claim.

        [CKP-EXTEND-GRANT] It MUST grant `budget` from now, count as a sign of life, and never bring a granted budget forward.
        [CKP-EXTEND-LAPSED] It MUST work on a lapsed claim that nobody took.
        [CKP-HOLD-LOST] `extend` and `renew` MUST answer `False` for a superseded or released pass, and change nothing.
        """
        ...

    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        """Give a sign of life; `False` when the pass no longer holds the claim.

        [CKP-RENEW-LIVE] It MUST count as a sign of life and MUST NOT touch the budget.
        [CKP-RENEW-BUDGET] It MUST answer `False` once the budget is spent.
        """
        ...

    async def release(self, holder: Pass, /) -> None:
        """Give the claim back.

        [CKP-RELEASE-FREE] The workflow MUST be claimable at once and the fence stays; a release by a superseded pass changes
            nothing.
        [CKP-RELEASE-FINAL] No later sign of life of that pass MUST take the workflow back; a write after the release lands or
            is `Fenced` until somebody claims, and is `Fenced` afterwards.
        """
        ...

    async def history(self, workflow: str, /) -> dict[str, Written]:
        """Give every record with the time at which it was written.

        [CKP-HISTORY-SAME] The same records in the same order as `load`.
        [CKP-HISTORY-TIME] `at` MUST be the store's clock at the winning write, timezone-aware, UTC.
        [CKP-HISTORY-RISING] Along the order times MUST NOT go back (unless the store's clock did).
        """
        ...

    async def discard(self, workflow: str, /) -> int:
        """Forget every record of the workflow, and give how many there were.

        [CKP-DISCARD-ALL] It MUST remove every record and return how many.
        [CKP-DISCARD-FENCE] A pass outstanding MUST be `Fenced` at its next write.
        [CKP-DISCARD-FREE] The id MUST be claimable at once, with a higher token.
        [CKP-DISCARD-UNKNOWN] Zero for a workflow that has nothing, and nothing is created. With a live claim and no records:
            zero, and the pass is fenced. What a deleted id leaves behind is bounded, or nothing.
        """
        ...

    async def describe(self, /) -> Description:
        """Say what the store is and promises, as it is configured now: see DUR-DESCRIBE."""
        ...


class Scheduler(Protocol):
    """Answers one question: when may this workflow run.

    [SCH-QUEUE-NAMED] Schedulers of different queue names on one datastore MUST NOT see each other.
    """

    @property
    def lease(self) -> timedelta:
        """How long a taken delivery is nobody else's without a `renew`."""
        ...

    async def now(self, /) -> datetime:
        """Give the store's clock, UTC."""
        ...

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        """Let the workflow run as soon as it can.

        [SCH-READY-EVENTUALLY] Some `next_ready` MUST yield it afterwards, though the taker dies, though it arrives while a pass
            runs, though the server restarts. It keeps an earlier due time and the count. A buried workflow is revived, with
            attempt one, only with `revive`.
        [SCH-READY-COALESCE] Many before a take may be one delivery; one after a take MUST be another delivery, after the
            running one is answered or lapses.
        """
        ...

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        """Take the next wakeup that is due, waiting for one at most `wait`.

        [SCH-NEXT-WAIT] It MUST wait at most `wait`, give `None` when nothing came, and return early when something did; it asks
            the store at most `wait` / poll interval times.
        [SCH-NEXT-OLDEST] Among the ready, the longest due goes first, roughly: of 1 000 made ready in turn none is taken more
            than 256 places late.
        [SCH-NEXT-ONE] A taken delivery MUST be nobody else's until the taker's lease runs out without a `renew`.
        [SCH-NEXT-LAPSED] After that it MUST be given out again, with `attempt` and `lapses` one higher.
        [SCH-NEXT-REPEAT] A take repeated by the store's own client MUST give the same delivery, not a lapse.
        [SCH-NEXT-DEEP] What a take touches MUST be the same at 1 000 and at 100 000 workflows that sleep, are ready, pending or
            finished.
        """
        ...

    async def renew(self, delivery: Delivery, /) -> Delivery:
        """Keep the delivery for another lease, and give the one to use from then on.

        [SCH-RENEW-NAME] The returned delivery MUST be current; a receipt that stays the same for the delivery's life is the
            safe form.
        [SCH-RENEW-SILENT] On a delivery taken over, answered or cancelled it MUST change nothing and return it as it is.
        """
        ...

    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        """Answer for the delivery and set the next wakeup.

        [SCH-WAKE-ANSWERS] Both in one step.
        [SCH-WAKE-COUNT] The next delivery MUST carry exactly `attempt` and `lapses` (a lapse adds one to both).
        [SCH-WAKE-NOT-BEFORE] It MUST NOT be given out before `when`, by the store's clock, unless something else makes it ready.
        [SCH-WAKE-NEWER] A wakeup that arrived since the delivery was taken MUST make the workflow due at once; the count passed
            stands.
        [SCH-WAKE-CANCELLED] It MUST NOT reinstate a workflow cancelled since the delivery was taken.
        [SCH-WAKE-STALE] With a receipt that is no longer current it MUST change nothing.
        """
        ...

    async def done(self, delivery: Delivery, /) -> None:
        """Answer for the delivery, with nothing further to do.

        [SCH-DONE-ANSWERS] The delivery MUST NOT be given out again.
        [SCH-DONE-NEWER] A wakeup that arrived since it was taken MUST make the workflow due at once, with attempt one.
        [SCH-DONE-STALE] As SCH-WAKE-STALE.
        [SCH-DONE-CANCELLED] As SCH-WAKE-CANCELLED.
        """
        ...

    async def bury(self, delivery: Delivery, reason: str, /) -> None:
        """Answer for the delivery and set the workflow aside.

        [SCH-BURY-KEEPS] It MUST NOT be given out and MUST NOT be lost; the reason is readable with `buried`, and a wakeup that
            arrived since waits with it.
        [SCH-BURY-CANCELLED] As SCH-WAKE-CANCELLED.
        [SCH-BURY-STALE] As SCH-WAKE-STALE.
        """
        ...

    async def buried(self, workflow: str, /) -> str | None:
        """Give the reason why the workflow is buried, or `None`."""
        ...

    async def cancel(self, workflow: str, /) -> None:
        """Forget the workflow's wakeups.

        [SCH-CANCEL-ALL] Every wakeup MUST go: ready, sleeping, taken, buried.
        """
        ...

    async def describe(self, /) -> Description:
        """Say what the store is and promises, as it is configured now: see DUR-DESCRIBE."""
        ...


class Client(Protocol):
    """What a handler needs: it starts, tells and deletes workflows, each in one call.

    [DUR-JOINED] Where the store lives in the application's database, `joined(connection)` MUST give a `Client` bound to the
        application's open transaction: visible with its commit, without a trace after its rollback.
    """

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value and let the workflow run.

        [DUR-ARRIVE] It MUST be `supply` and `make_ready`, and wake also when `first` is false.

        Raises: `ReservedKey`, `NotEncodable`, `EffectTorn`.
        """
        ...

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the workflow's inbox and let it run.

        [DUR-DELIVER] It MUST be `append` and `make_ready`.

        Raises: `NotEncodable`.
        """
        ...

    async def delete(self, workflow: str, /) -> int:
        """Forget the workflow, whatever it is doing, and give how many records it had.

        [DUR-DELETE] It MUST be `cancel` and `discard`. A deleted id is unknown: it may begin a new life, which sees nothing of
            the old one.
        """
        ...


class Durable(Client, Protocol[E_contra]):
    """Owns one checkpointer and one scheduler, and names the transitions across them.

    [DUR-CO-COMMIT] Where both are one datastore each transition MUST be one commit: no crash, error or cancellation shows one
        half. Construction MUST refuse halves that do not share their pool, connection or client.
    [DUR-SPLIT-ORDER] Otherwise the order MUST be: record before queue (`arrive`, `deliver`); record, release, answer
        (`finish`); release before answer (`pause`, `fail`, `hand_back`); cancel before discard (`delete`); take, claim, load
        (`begin`). After a crash in between, asking again heals it.
    [DUR-TURN-FENCED] `finish` by a superseded pass MUST raise `Fenced` and change neither half; `pause`, `fail` and `hand_back`
        by one release nothing and answer the delivery only while its receipt is current. Repeating a `finish` that landed is
        not fenced; a `finish` after another end of the same turn is.
    """

    @property
    def checkpointer(self) -> Checkpointer[E_contra]:
        """The half that keeps records and claims."""
        ...

    @property
    def scheduler(self) -> Scheduler:
        """The half that keeps wakeups."""
        ...

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        """Take up to `limit` deliveries, claim their workflows and load them, waiting at most `wait` for the first.

        [DUR-BEGIN] It claims with the scheduler's lease as `alive`, and sleeps by itself until the next due instant. A finished
            workflow MUST be answered without a turn. One whose claim is held MUST come back, counts unchanged, when the claim
            is released or lapses at the latest (split: after one lease at most), not by a short poll.
        [DUR-BEGIN-FRESH] What it loads MUST contain every record committed before the claim was granted.
        [DUR-BEGIN-REPEAT] As SCH-NEXT-REPEAT and CKP-CLAIM-REPEAT.
        """
        ...

    async def renew(self, turn: Turn, /) -> Turn | None:
        """Give a sign of life for the turn.

        [DUR-KEEP] It MUST renew the claim, then the delivery; `None` when the claim is lost, and the delivery is then left alone.
        """
        ...

    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        """End the workflow with its outcome.

        [DUR-FINISH] It MUST record the value under `outcome:`, release, answer. A value that the codec refuses MUST be refused
            before anything is written.

        Raises: `Fenced`, `NotEncodable`.
        """
        ...

    async def pause(self, turn: Turn, due: datetime | None, /) -> None:
        """End the pass while the workflow waits.

        [DUR-PAUSE] It MUST release and answer, with the next wakeup when there is a due time.
        """
        ...

    async def fail(self, turn: Turn, reason: str, again_in: timedelta | None, /) -> None:
        """End the pass as a failed attempt, to be tried again, or never when `again_in` is `None`.

        [DUR-FAIL] It MUST release and answer with the attempt one higher, or bury.
        """
        ...

    async def hand_back(self, turn: Turn, again_in: timedelta, /) -> None:
        """End the pass untouched.

        [DUR-HAND-BACK] It MUST release and answer with `attempt` and `lapses` unchanged. Zero is allowed and means at once.
        """
        ...

    async def result(self, workflow: str, /) -> Finished[object] | Failed | None:
        """Give how the workflow ended.

        [DUR-RESULT] `None` while it has not, `Finished(value)`, or `Failed(reason)` when it is buried; in any process. `watch`
            MUST return when that may have changed or the wait is over, without a busy loop.
        """
        ...

    async def watch(self, workflow: str, wait: timedelta, /) -> None:
        """Return when the workflow's result may have changed, or after `wait`: see DUR-RESULT."""
        ...

    async def describe(self, /) -> Description:
        """Say what the stores are and promise, as they are configured now.

        [DUR-DESCRIBE] What it says MUST hold: product and version, what an acknowledged write survives ("unknown" where the
            store may not ask), whether it undoes, interleaves, co-commits, joins, lists, and its poll interval. A pair answers
            with the weaker word.
        """
        ...


class Catalog(Protocol):
    """Shows a store to its operators. Optional."""

    async def workflows(
        self, /, *, prefix: str = "", state: State | None = None, after: str | None = None, limit: int = 100
    ) -> Sequence[Listed]:
        """Give a page of workflows, in the order that the store declares; the next page comes `after` the last id of this one.

        [CAT-LIST] It MUST read only, and show of each the first state that applies of: finished, buried, running, ready,
            sleeping, blocked.
        """
        ...

    async def sweep(self, finished_before: datetime, /) -> int:
        """Discard workflows that finished before an instant of the store's clock, and give how many.

        [CAT-SWEEP] It MUST work in batches and never take one that is claimed, ready, sleeping, blocked or buried. A workflow
            that is not finished never expires.
        """
        ...
