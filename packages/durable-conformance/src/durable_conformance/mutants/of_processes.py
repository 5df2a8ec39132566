# ruff: noqa: D106 - a part of a store is documented where the protocol has it, and a mutant by its text
"""Mutants that one process cannot show: of the double in a file."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from durable_conformance.harness import Hook, Opening
from durable_conformance.mutants.double import DoubleCheckpointer, DoubleDurable, DoubleScheduler, Effect, Hand, Machine
from durable_conformance.mutants.harness import DoubleHarness, FileHarness
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import listed, with_records
from durable_conformance.mutants.vault import Content, FileVault, SystemTime, Vault
from durable_core.contract import Delivery, Pass, Recorded, Turn
from durable_core.reference import Answer, Ledger, State


class VaultHarness(FileHarness):
    """The double in a file, over another kind of vault."""

    kind: type[FileVault] = FileVault

    def vault_at(self, at: Opening) -> Vault:
        return self.kind(SystemTime(), at.folder / "vault")


class BufferedVault(FileVault):
    """Keeps what it was told in memory, and writes it down once in a while."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self._kept: Content | None = None
        self._flushed = time.monotonic()

    @contextmanager
    def transaction(self) -> Generator[Content]:
        with self._lock:
            if self._kept is None:
                with super().transaction() as content:
                    self._kept = content
            yield self._kept
            if time.monotonic() - self._flushed > 10:
                self._flushed = time.monotonic()
                self.write(self._kept)


class Buffered(VaultHarness):
    """A store that acknowledges before anything is written down."""

    kind = BufferedVault


@mutant("M40", "CKP-RECORD-DURABLE", "acknowledged from a buffer, which dies with its process")
class BufferedRecords(Buffered):
    pass


@mutant("N280", "CKP-SUPPLY-DURABLE", "a supply is acknowledged from a buffer, which dies with its process")
class BufferedSupplies(Buffered):
    pass


@mutant("N281", "DUR-DESCRIBE", "says that a write survives a kill, and keeps it in a buffer")
class SaysItSurvives(Buffered):
    pass


class ServedVault(Vault):
    """A vault in a server, which says that what it acknowledged survives a kill."""

    durable = True


class ServedHarness(DoubleHarness):
    """The double behind a server that can be killed."""

    name = "served double"
    offers: ClassVar[frozenset[Hook]] = DoubleHarness.offers | frozenset[Hook]({"kill"})
    vault = ServedVault

    async def kill(self, at: Opening, /) -> None:
        """Lose nothing: everything acknowledged was written down."""


@mutant("M41", "CKP-RECORD-DURABLE", "acknowledged before the server has written it down, and lost with its kill")
class LostWithTheServer(ServedHarness):
    async def kill(self, at: Opening, /) -> None:
        with self.vault_at(at).transaction() as content:
            for workflow in list(content.ledgers):
                state = content.state(workflow, at.queue)
                content.put(with_records(state, listed(state)[:-2]), at.queue)


@mutant("N302", "CKP-CLAIM-CLOCK", "the time is read before the wait for another's commit")
class ReadBeforeTheWait(DoubleHarness):
    class checkpointer(DoubleCheckpointer):
        async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
            began = self.time()
            return await self.change(workflow, lambda state, now: self.machine.claim(state, began, budget, alive))


@mutant("N282", "CKP-LOAD-SHARED", "a cache for the process, which another process's write does not reach")
class CacheOfTheProcess(Buffered):
    pass


class AloneInItsProcess(FileVault):
    """Excludes the threads of its own process only: reads, and writes down a moment later what it made of it."""

    @contextmanager
    def transaction(self) -> Generator[Content]:
        with _ours:
            content: Content = pickle.loads(self.path.read_bytes()) if self.path.exists() else self.content()
            content.purge(self.time.now())
            before = pickle.dumps(content)
            yield content
            if pickle.dumps(content) != before:
                time.sleep(0.0005)
                self.write(content)


_ours = threading.RLock()


class Unlocked(VaultHarness):
    """A store whose lock is its process's own."""

    kind = AloneInItsProcess


@mutant("N283", "CKP-CLAIM-ONE", "claims exclude each other within one process only")
class ClaimsOfOneProcess(Unlocked):
    pass


@mutant("N284", "CKP-RECORD-ONCE", "records exclude each other within one process only")
class RecordsOfOneProcess(Unlocked):
    pass


@mutant("N285", "CKP-LOAD-PREFIX", "the order is kept within one process only")
class OrderOfOneProcess(Unlocked):
    pass


@mutant("N286", "CKP-APPEND-CURSOR", "numbers are drawn within one process only")
class NumbersOfOneProcess(Unlocked):
    pass


@mutant("N287", "SCH-NEXT-ONE", "takes exclude each other within one process only")
class TakesOfOneProcess(Unlocked):
    pass


@mutant("N288", "CKP-CLAIM-RISING", "each process counts its own tokens", FileHarness)
class TokensOfTheProcess(DoubleCheckpointer):
    drawn = 0

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        def take(state: State, now: datetime) -> tuple[State, Pass | None]:
            type(self).drawn += 1
            below = State(state.workflow, Ledger(state.ledger.records, state.ledger.claim, self.drawn - 1), state.wakeup)
            return self.machine.claim(below, now, budget, alive, self.drawn)

        return await self.change(workflow, take)


@mutant("N289", "CKP-RECORD-FENCED", "the fence is a lock that the process believes it holds", FileHarness)
class BelievesItHolds(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        def write(state: State, now: datetime) -> tuple[State, Answer]:
            claim = state.ledger.claim
            if claim is not None and claim.token != holder.token:
                return self.machine.supply(state, now, key, self.codec.encode(value))
            return self.machine.record(state, now, holder, key, self.codec.encode(value))

        return self.stored(holder, holder.workflow, key, await self.change(holder.workflow, write))


@mutant("N290", "CKP-CLAIM-LAPSE", "a claim lasts as long as its holder's process has the file, and an hour", FileHarness)
class LastsAnHour(Machine):
    @staticmethod
    def claim(
        state: State, now: datetime, budget: timedelta, alive: timedelta, token: int | None = None
    ) -> tuple[State, Pass | None]:
        from durable_core import reference

        return reference.claim(state, now, max(budget, timedelta(hours=1)), max(alive, timedelta(hours=1)), token)


class ClientsTime(SystemTime):
    """The clock of whoever asks."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251 - the mutation


class ClientsClock(FileHarness):
    """A store that lives by the clock of whoever asks."""

    def vault_at(self, at: Opening) -> Vault:
        return FileVault(ClientsTime(), at.folder / "vault")


@mutant("N291", "CKP-CLAIM-CLOCK", "lapse is decided by the clock of who claims")
class LapseByTheClient(ClientsClock):
    pass


@mutant("N292", "CKP-HISTORY-TIME", "records are stamped by the clock of who writes")
class StampsByTheClient(ClientsClock):
    pass


@mutant("N293", "SCH-WAKE-NOT-BEFORE", "due times are compared with the clock of who takes")
class DueByTheClient(ClientsClock):
    pass


@mutant(
    "N294",
    "CKP-TRANSACT-ATOMIC",
    "the record is committed before the effect runs, and a process that dies in it leaves it",
    FileHarness,
)
class RecordBeforeTheEffect(DoubleCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        with self.vault.transaction() as content:
            for workflow in list(content.ledgers):
                state = content.state(workflow, self.queue)
                if "k" not in state.ledger.records:
                    content.put(self.machine.supply(state, self.time(), "k", '"done"')[0], self.queue)
        return await super().apply(effect, hand)


@mutant("N295", "CKP-TRANSACT-ONCE", "the effect is committed, and its record a little later", FileHarness)
class RecordALittleLater(DoubleCheckpointer):
    def commit(self, content: Content, holder: Pass, key: str, encoded: str, hand: Hand) -> Answer:
        answer = self.machine.ask(content.state(holder.workflow, self.queue), holder, key)
        if answer is None:
            self.keep(content, hand)
        return answer or Recorded(encoded, True)

    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        value = await super().transact(holder, key, effect)
        await asyncio.sleep(0.005)
        return (await self.record(holder, key, value)).value


@mutant("N296", "SCH-READY-EVENTUALLY", "what a process has taken dies with it", FileHarness)
class DiesWithItsTaker(DoubleScheduler):
    def take(self, content: Content) -> list[Delivery]:
        taken = list(super().take(content))
        for delivery in taken:
            content.answers[f"taker {delivery.workflow}"] = os.getpid()
        alive = [
            one for one in taken if one.lapses == 0 or content.answers.get(f"first {one.workflow}", os.getpid()) == os.getpid()
        ]
        for delivery in taken:
            content.answers.setdefault(f"first {delivery.workflow}", os.getpid())
        return alive


@mutant("N297", "SCH-DONE-STALE", "done goes by the workflow and not by the receipt", FileHarness)
class DoneByTheWorkflow(Machine):
    @staticmethod
    def done(state: State, now: datetime, delivery: Delivery) -> State:
        from durable_core import reference

        return reference.cancel(state)


@mutant("N298", "SCH-NEXT-WAIT", "what another process makes ready is not noticed during a wait")
class DeafToOthers(FileHarness):
    def vault_at(self, at: Opening) -> Vault:
        vault = FileVault(SystemTime(), at.folder / "vault")
        vault.poll = 3600.0
        return vault


@mutant("N299", "DUR-CO-COMMIT", "a client's value and its wakeup are two commits, and it may die in between", FileHarness)
class ClientInTwoCommits(DoubleDurable):
    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        recorded = await self.checkpointer.supply(workflow, key, value)
        await asyncio.sleep(0.05)
        await self.scheduler.make_ready(workflow)
        return recorded


@mutant("N300", "DUR-CO-COMMIT", "a worker answers first, and records a little later", FileHarness)
class WorkerInTwoCommits(DoubleDurable):
    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        await self.scheduler.done(turn.delivery)
        await asyncio.sleep(0.05)
        return await super().finish(turn, value)


@mutant("N301", "DUR-RESULT", "a watch does not see another process")
class WatchSeesItsOwn(FileHarness):
    def vault_at(self, at: Opening) -> Vault:
        vault = FileVault(SystemTime(), at.folder / "vault")
        vault.poll = 3600.0
        return vault
