"""What a workflow's body is handed: every effect, wait and clock of a pass goes through its `Run`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeVar, TypeVarTuple, overload

from durable_core import keys
from durable_core._pulse import Pulse
from durable_core._records import Records
from durable_core._settle import Ended, Settle
from durable_core._work import Work, refuse_effect
from durable_core.contract import Checkpointer, E_contra, Entry, Recorded, Torn
from durable_core.errors import DuplicateStep, EffectTorn, NotEncodable, OutcomeUnknown, StepFailed
from durable_core.outcome import Wait
from durable_core.parsing import Parser, check_parser, moment, optional, parsed

if TYPE_CHECKING:
    from durable_core.observer import Observer

__all__ = ["Ended", "Run"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_ZERO = timedelta(0)
_MISSING: Final = object()


class Run(Generic[E_contra]):
    """One pass of one workflow, as its body sees it.

    Every method may raise an `Interruption` (`Fenced`, `Suspended`), which the body lets through, `DuplicateStep` for a name
    that was used in this pass, `ReservedKey` and `ValueError` for one that cannot be used, and `NotParsed` when the parser
    refuses what the store holds.

    [RUN-CLOSED] A pass ends only when no call of it is at work. A body that returned is waited for, and the failure of a call
        still at work is the body's. In every other ending the tasks inside its calls are cancelled and waited for. Afterwards
        every call of the run ends its task quietly (`Ended`) and writes nothing.
    [RUN-SUSPEND-SETTLE] A wait that cannot be answered holds its branch until every other call of the pass has ended or is
        itself waiting, and whatever the body can do without awaiting anything outside the run has been done; then the pass
        suspends, and every held wait raises. From then on a call that would start an effect raises the suspension. A wait
        cancelled while held is withdrawn.
    """

    def __init__(
        self,
        checkpointer: Checkpointer[E_contra],
        pulse: Pulse,
        settle: Settle,
        records: Mapping[str, object],
        observer: Observer | None = None,
    ) -> None:
        self._checkpointer, self._pulse, self._settle, self._observer = checkpointer, pulse, settle, observer
        self._workflow, self._token = pulse.holder.workflow, pulse.holder.token
        keys.check_workflow(self._workflow)
        self._records = Records(records)
        self._names: set[str] = set()
        self._at_work: dict[str, None] = {}
        self._guarded: dict[str, None] = {}
        self._unguarded: Callable[[], object] | None = None
        self._closing = False

    def __repr__(self) -> str:
        return f"<Run of {self._workflow!r}, token {self._token}, {len(self._names)} names used>"

    @property
    def workflow(self) -> str:
        """The id of the workflow."""
        return self._workflow

    @property
    def at_work(self) -> tuple[str, ...]:
        """The keys of the steps whose effects are running."""
        return tuple(self._at_work)

    def when_unguarded(self, call: Callable[[], object], /) -> None:
        """Have `call`, which cancels the pass, called once no `at_most_once` step is under way. [RUN-WORK-DRAIN]

        None begins from now on.
        """
        self._closing = True
        if self._guarded:
            self._unguarded = call
        else:
            call()

    def idempotency_key(self, key: str) -> str:
        """Give 64 characters that are the same on every pass, token and worker: for effects that leave the store.

        They depend on the workflow's id and the key alone, so a new life of a deleted id has the same ones.
        """
        import hashlib  # costs more than the rest of this module, and few bodies need it

        keys.check_open_key(self._workflow, key)
        return hashlib.sha256(f"{len(self._workflow)}:{self._workflow}{key}".encode()).hexdigest()

    async def step(
        self,
        key: str,
        effect: Callable[[*Ts], Awaitable[object]],
        parse: Parser[T],
        /,
        *args: *Ts,
        within: timedelta | None = None,
        timeout: timedelta | None = None,
        at_most_once: bool = False,
        failures: tuple[type[Exception], ...] = (),
    ) -> T:
        """Call `effect(*args)` unless its result is recorded, and give what the store holds, parsed.

        `within` is how long the effect may take: the claim covers it before the effect runs. `timeout` ends the effect.

        [RUN-STEP] The effect runs until a result is recorded, never after it.
        [RUN-STEP-NAME] A name used twice in a pass is `DuplicateStep`; a name whose effect raised and recorded nothing is free
            again.
        [RUN-STEP-KEPT] Once the effect has returned, its record is written even if the step is cancelled meanwhile, any number
            of times; for no longer than one window after the last confirmed sign of life.
        [RUN-STEP-FAILURES] An exception of the types in `failures` is recorded, its type name and message, and `StepFailed` is
            raised on this pass and on every later one. Any other records nothing and propagates as it is.
        [RUN-STEP-MAYBE] `at_most_once` records that the effect is about to run. A pass that finds this without value or failure
            raises `OutcomeUnknown`; so does an exception outside `failures`, on the same pass.
        [RUN-STEP-TIMEOUT] `timeout` ends the effect, not its record, and counts as `TimeoutError` for `failures`. If it fires
            after the effect returned, the step returns the value; a cancellation from outside is raised once the record has
            landed.
        [RUN-STEP-BUDGET] Before the effect runs the claim covers all of `within`, or at least half of the budget where none is
            given.
        [RUN-STEP-FRESH] A pass whose last confirmed sign of life is older than its window renews before it starts an effect.
        [RUN-STEP-EXIT] `SystemExit` and `GeneratorExit` out of the effect are a failure of the step; `KeyboardInterrupt` passes.
        [RUN-PARSE] The record is written before the parser is asked; its refusal names workflow, key and what was stored.

        Raises: `StepFailed`, `OutcomeUnknown`, `EffectTorn`, `NotEncodable`, `Misconfigured` for an effect that is not an async
        function.
        """
        refuse_effect(key, effect)
        check_parser(parse)
        if within is not None or timeout is not None:
            _check_durations(within, timeout)
        self._take(key)
        if (stored := self._replayed(key)) is not _MISSING:
            return parsed(self._workflow, key, parse, stored)
        call = functools.partial(effect, *args)
        return await self._at(key, self._performed(key, call, parse, within, timeout, at_most_once, failures))

    async def transact(self, key: str, effect: E_contra, parse: Parser[T], *, within: timedelta | None = None) -> T:
        """Let the store apply an effect and record what it gives in one commit, and give what the store holds, parsed.

        As `step` otherwise; see CKP-TRANSACT-ONCE.

        Raises: `EffectTorn`, `NotEncodable`, `Misconfigured`, and whatever the effect raises.
        """
        check_parser(parse)
        _check_durations(within, None)
        self._take(key)
        if (stored := self._replayed(key)) is not _MISSING:
            return parsed(self._workflow, key, parse, stored)
        return await self._at(key, self._transacted(key, effect, parse, within))

    async def sleep(self, key: str, duration: timedelta) -> None:
        """Wait until `duration` after this was first reached.

        [RUN-SLEEP] The deadline is recorded, not the duration; zero or less returns at once; a deadline past the year 9999 is a
            `ValueError` before anything is recorded.
        """
        self._take(key)
        if self._replayed(key) is not _MISSING or duration > _ZERO:
            await self._at(key, self._slept(key, duration))

    @overload
    async def awaiting(self, key: str, parse: Parser[T]) -> T: ...

    @overload
    async def awaiting(self, key: str, parse: Parser[T], *, timeout: timedelta, default: object) -> T: ...

    async def awaiting(self, key: str, parse: Parser[T], *, timeout: timedelta | None = None, default: object = _MISSING) -> T:
        """Give the value that somebody supplies under the key, or the default once the timeout is over.

        [RUN-AWAIT-UNTIL] The deadline is recorded when the wait is first reached, and stands. At the deadline the pass records
            the default under the awaited key: the first writer wins, and a client that came too late sees `first` false. An
            answer recorded before the default counts, even after the deadline; a deadline that passes while the wait is held is
            answered then.
        [RUN-AWAIT-DEFAULT] The default is tried against codec and parser when the wait is first reached.

        Raises: `NotEncodable` and `NotParsed` for a default that could not be read back.
        """
        if (timeout is None) is not (default is _MISSING):
            raise TypeError("timeout and default go together")
        return await self._awaited(key, parse, timeout, default, allow_input=False)

    async def input(self, parse: Parser[T]) -> T:
        """Give the value that the workflow was started with. [RUN-START]"""
        return await self._awaited(keys.INPUT, parse, None, _MISSING, allow_input=True)

    async def receive(
        self, key: str, parse: Parser[T], *, after: str | None, limit: int | None = None, timeout: timedelta | None = None
    ) -> tuple[Entry[T], ...]:
        """Give the entries after a key of the inbox, at least one; or none, once the timeout is over.

        `after` is the key of the last entry that was read, or `None` for the beginning.

        [RUN-RECEIVE] Reading is a step that records how far it read. With a timeout it returns empty when the recorded deadline
            passed first.
        [RUN-PENDING-FRESH] On the pass that first reaches it, it looks at the store and not at what was loaded at the top.
        """
        return await self._read(key, parse, after, limit, timeout, hold=True)

    async def pending(self, key: str, parse: Parser[T], *, after: str | None, limit: int | None = None) -> tuple[Entry[T], ...]:
        """Give the entries after a key of the inbox that are there now, perhaps none: `receive` without waiting."""
        return await self._read(key, parse, after, limit, None, hold=False)

    async def now(self, key: str) -> datetime:
        """Give the time.

        [RUN-CLOCK] It is the only clock in a body, recorded like a step, and never ahead of the store's.
        """
        self._take(key)
        if self._replayed(key) is _MISSING:
            await self._at(key, self._clocked(key))
        return parsed(self._workflow, key, moment, self._records.get(key))

    # Names and records

    def _take(self, key: str, *, allow_input: bool = False) -> None:
        self._settle.reached()
        keys.check_own_key(self._workflow, key, allow_input=allow_input)
        if key in self._names:
            raise DuplicateStep(self._workflow, key)
        self._names.add(key)

    def _replayed(self, key: str) -> object:
        """Give what is recorded under the key, or `_MISSING`; a recorded failure outranks a value."""
        if self._records.failed(key):
            raise self._failure(key, self._records.get(keys.FAILED + key))
        stored = self._records.find(key, _MISSING)
        if stored is _MISSING:
            return _MISSING
        if isinstance(stored, Torn):
            raise EffectTorn(self._workflow, key, stored.reason)
        if self._observer is not None:
            self._tell(key, None)
        return stored

    def _failure(self, key: str, stored: object) -> StepFailed:
        match stored:
            case {"kind": str(kind), "message": str(message)}:
                return StepFailed(self._workflow, key, kind, message)
            case _:
                return StepFailed(self._workflow, key, "unknown", repr(stored))

    async def _record(self, key: str, value: object) -> Recorded:
        sent = self._pulse.monotonic()
        recorded = await self._checkpointer.record(self._pulse.holder, key, value)
        self._pulse.wrote(sent)
        self._records.put(key, recorded.value)
        if self._observer is not None:
            self._tell(key, recorded.first)
        return recorded

    def _tell(self, key: str, first: bool | None) -> None:
        from durable_core.observer import StepRecorded, StepReplayed, notify  # only a run that is observed pays for it

        event = StepReplayed(self._workflow, self._token, key)
        notify(self._observer, event if first is None else StepRecorded(self._workflow, self._token, key, first))

    async def _at(self, key: str, call: Awaitable[T]) -> T:
        """Run a call of the pass as one that is at work, and free its name when it recorded nothing."""
        task = self._settle.enter()
        try:
            value = await call
        except BaseException as error:
            if not self._records.has(key) and not self._records.failed(key):
                self._names.discard(key)
            self._settle.leave(task, key, error)
            del task  # which holds the exception, which holds this frame
            raise
        self._settle.leave(task, key)
        return value

    # Steps

    async def _performed(
        self,
        key: str,
        effect: Callable[[], Awaitable[object]],
        parse: Parser[T],
        within: timedelta | None,
        timeout: timedelta | None,
        at_most_once: bool,
        failures: tuple[type[Exception], ...],
    ) -> T:
        work = Work(
            self._workflow,
            key,
            effect,
            functools.partial(self._record, key),
            functools.partial(self._keep_failure, key),
            failures=failures,
            at_most_once=at_most_once,
            timeout=timeout,
            window_left=lambda: self._pulse.window_left,
            begin=functools.partial(self._begin, key, within, at_most_once),
        )
        try:
            recorded = await work.done()
        finally:
            self._at_work.pop(key, None)
            self._unguard(key)
        return parsed(self._workflow, key, parse, recorded.value, fresh=recorded.first)

    async def _begin(self, key: str, within: timedelta | None, at_most_once: bool) -> None:
        """Make sure that the effect may run now: there is no turn of the loop between the last check and the effect."""
        self._settle.refuse_suspended()
        if self._records.has(keys.START + key):
            raise OutcomeUnknown(self._workflow, key)
        await self._pulse.ready(self._checkpointer, key, within)
        if at_most_once:
            await self._start_once(key)
            await self._pulse.ready(self._checkpointer, key, within)
        self._settle.refuse_suspended()
        self._settle.into_effect(key)
        self._at_work[key] = None

    async def _start_once(self, key: str) -> None:
        """Record that the effect is about to run; from here on nobody who can wait ends the pass until the step is done."""
        if self._closing:
            await asyncio.get_running_loop().create_future()  # until the cancellation that is on its way
        self._settle.refuse_suspended()
        self._guarded[key] = None
        if not (await self._record(keys.START + key, self._token)).first:
            raise OutcomeUnknown(self._workflow, key)

    def _unguard(self, key: str) -> None:
        if key not in self._guarded:
            return
        del self._guarded[key]
        if not self._guarded and self._unguarded is not None:
            call, self._unguarded = self._unguarded, None
            call()

    async def _keep_failure(self, key: str, kind: str, message: str) -> StepFailed:
        recorded = await self._record(keys.FAILED + key, {"kind": kind, "message": message})
        return self._failure(key, recorded.value)

    async def _transacted(self, key: str, effect: E_contra, parse: Parser[T], within: timedelta | None) -> T:
        self._settle.refuse_suspended()
        await self._pulse.ready(self._checkpointer, key, within)
        self._settle.refuse_suspended()
        sent = self._pulse.monotonic()
        self._at_work[key] = None
        inside = self._settle.into_effect(key)
        try:
            stored = await self._checkpointer.transact(self._pulse.holder, key, effect)
        finally:
            self._settle.out_of_effect(inside)
            del self._at_work[key]
        self._pulse.wrote(sent)
        self._records.put(key, stored)
        if self._observer is not None:
            self._tell(key, True)
        return parsed(self._workflow, key, parse, stored, fresh=True)

    # Clocks and waits

    def _deadline(self, key: str, duration: timedelta) -> datetime:
        try:
            return self._pulse.now() + duration
        except OverflowError:
            raise ValueError(
                f"{key!r} of workflow {self._workflow!r} would last {duration}, which ends outside the years 1 to 9999"
            ) from None

    async def _clocked(self, key: str) -> None:
        self._settle.refuse_suspended()
        await self._record(key, self._pulse.now().isoformat())

    async def _recorded_deadline(self, key: str, record: str, duration: timedelta) -> datetime:
        """Give the deadline that stands: the recorded one, or one that far from now, recorded."""
        if not self._records.has(record):
            self._settle.refuse_suspended()
            await self._record(record, self._deadline(key, duration).isoformat())
        return parsed(self._workflow, record, moment, self._records.get(record))

    async def _hold(self, wait: Wait) -> None:
        """Return once the deadline of the wait has passed, by the engine's clock; raise when the pass suspends."""
        if wait.due is None or self._pulse.now() < wait.due:
            await self._settle.hold(wait, _task())

    async def _slept(self, key: str, duration: timedelta) -> None:
        due = await self._recorded_deadline(key, key, duration)
        await self._hold(Wait("time", key, due))

    async def _awaited(self, key: str, parse: Parser[T], timeout: timedelta | None, default: object, *, allow_input: bool) -> T:
        check_parser(parse)
        if timeout is not None:
            keys.check_duration(timeout, f"the timeout of {key!r}")
        self._take(key, allow_input=allow_input)
        if (stored := self._replayed(key)) is _MISSING:
            stored = await self._at(key, self._answered(key, parse, timeout, default))
        return parsed(self._workflow, key, parse, stored)

    async def _answered(self, key: str, parse: Parser[T], timeout: timedelta | None, default: object) -> object:
        due = None
        if timeout is not None:
            self._try_default(key, parse, default)
            due = await self._recorded_deadline(key, keys.UNTIL + key, timeout)
        await self._hold(Wait("value", key, due))
        self._settle.refuse_suspended()
        return (await self._record(key, default)).value

    def _try_default(self, key: str, parse: Parser[T], default: object) -> None:
        try:
            crossed = self._checkpointer.roundtrip(default)
        except NotEncodable as refused:
            raise NotEncodable(refused.reason, self._workflow, key) from refused
        parsed(self._workflow, key, parse, crossed, fresh=True)

    async def _read(
        self, key: str, parse: Parser[T], after: str | None, limit: int | None, timeout: timedelta | None, *, hold: bool
    ) -> tuple[Entry[T], ...]:
        check_parser(parse)
        if after is not None:
            keys.inbox_number(after)
        if limit is not None:
            keys.check_limit(limit)
        if timeout is not None:
            keys.check_duration(timeout, f"the timeout of {key!r}")
        self._take(key)
        if self._replayed(key) is _MISSING:
            await self._at(key, self._looked(key, after, limit, timeout, hold=hold))
        upto = parsed(self._workflow, key, optional(str), self._records.get(key))
        found = [] if upto is None else self._records.entries(after, upto=upto)
        return tuple(Entry(entry, parsed(self._workflow, entry, parse, self._records.get(entry))) for entry in found)

    async def _looked(self, key: str, after: str | None, limit: int | None, timeout: timedelta | None, *, hold: bool) -> None:
        """Record how far the inbox was read: the last key, or `None` when there was nothing and no more waiting."""
        self._settle.refuse_suspended()
        await self._refresh()
        if hold and not self._records.entries(after):
            due = None
            if timeout is not None:
                due = await self._recorded_deadline(key, keys.UNTIL + key, timeout)
            await self._hold(Wait("message", key, due))
            self._settle.refuse_suspended()
            await self._refresh()
        found = self._records.entries(after)[:limit]
        await self._record(key, found[-1] if found else None)

    async def _refresh(self) -> None:
        """Learn what was recorded since the last look."""
        skip = self._records.loaded
        self._records.merge(skip, await self._checkpointer.load(self._workflow, skip=skip))


def _task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _check_durations(within: timedelta | None, timeout: timedelta | None) -> None:
    if within is not None:
        keys.check_duration(within, "within")
    if timeout is not None:
        keys.check_duration(timeout, "timeout")
