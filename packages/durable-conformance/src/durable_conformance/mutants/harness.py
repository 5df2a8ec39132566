# ruff: noqa: D102 - a part of a store is documented where the protocol has it, and a mutant by its text
"""The harnesses of the double: in memory with every hook, and in a file for what needs several processes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

from durable_conformance.harness import Application, Effects, Harness, Hook, Meter, Opening, Stores, Wire
from durable_conformance.mutants.double import (
    DoubleCheckpointer,
    DoubleDurable,
    DoubleScheduler,
    Effect,
    Hand,
    Link,
    Machine,
    text,
)
from durable_conformance.mutants.vault import FileVault, SystemTime, Vault
from durable_core.codec import JsonCodec, decoded_for, encoded_for
from durable_core.contract import Durable, Entry, Recorded
from durable_core.keys import check_once, check_open_key, check_workflow
from durable_core.reference import State


class Broke(Exception):
    """What a failing effect raises."""


class DoubleEffects(Effects[Effect]):
    """Effects on the vault's counters."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def add(self, counter: str, gives: object, /) -> Effect:
        def effect(hand: Hand) -> object:
            hand.add(counter)
            return gives

        return effect

    def fail(self, counter: str, /, *, first: bool) -> Effect:
        def effect(hand: Hand) -> object:
            if not first:
                hand.add(counter)
            raise Broke("the effect failed")

        return effect

    async def applied(self, counter: str, /) -> int:
        with self._vault.transaction() as content:
            return content.counters.get(counter, 0)

    def commit(self, counter: str, /) -> Effect:
        def effect(hand: Hand) -> object:
            hand.add(counter)
            hand.commit()
            return "committed"

        return effect

    def swallow(self, counter: str, /) -> Effect:
        def effect(hand: Hand) -> object:
            hand.add(counter)
            try:
                hand.refuse()
            except ZeroDivisionError:
                pass
            return "swallowed"

        return effect

    def meanwhile(self, counter: str, call: Callable[[], Awaitable[object]], /) -> Effect:
        async def effect(hand: Hand) -> object:
            hand.add(counter)
            await call()
            return "meanwhile"

        return effect

    def inside(self, counter: str, call: Callable[[], object], /) -> Effect:
        def effect(hand: Hand) -> object:
            hand.add(counter)
            call()
            return "inside"

        return effect


class DoubleWire:
    """A connection whose replies can be lost."""

    def __init__(self, stores: object, link: Link) -> None:
        self.stores, self._link = stores, link

    def lose_reply(self) -> None:
        self._link.losing += 1

    @property
    def lost(self) -> int:
        return self._link.lost


class DoubleMeter:
    """Counts the vault's transactions, and the workflows that they looked at."""

    def __init__(self, vault: Vault) -> None:
        self._vault, self._asked, self._touched = vault, vault.asked, vault.touched

    @property
    def asked(self) -> int:
        return self._vault.asked - self._asked

    @property
    def touched(self) -> int:
        return self._vault.touched - self._touched


class DoubleApplication:
    """A transaction of an application that lives in the vault: what its client writes is staged until the commit."""

    def __init__(self, store: DoubleDurable) -> None:
        self._store = store
        self._staged: dict[str, State] = {}

    @property
    def client(self) -> DoubleApplication:
        return self

    def state(self, workflow: str) -> State:
        """Give a workflow as this transaction sees it, and hold it from now on."""
        vault = self._store.vault
        vault.staged[workflow] = self
        with vault.transaction() as content:
            return self._staged.get(workflow, content.state(workflow, self._store.queue))

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        check_open_key(workflow, key, allow_input=True)
        store, encoded = self._store, encoded_for(self._store.codec, workflow, key, value)
        self._staged[workflow], answer = store.machine.arrive(self.state(workflow), store.time(), key, encoded)
        return store.stored(None, workflow, key, answer)

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        check_workflow(workflow)
        check_once(once)
        store, encoded = self._store, encoded_for(self._store.codec, workflow, "inbox:", value)
        self._staged[workflow], entry = store.machine.deliver(self.state(workflow), store.time(), encoded, once)
        return Entry(entry.key, decoded_for(store.codec, workflow, entry.key, text(entry.value)))

    async def delete(self, workflow: str, /) -> int:
        check_workflow(workflow)
        self._staged[workflow], count = self._store.machine.delete(self.state(workflow))
        return count

    async def commit(self) -> None:
        with self._store.vault.transaction() as content:
            for state in self._staged.values():
                content.put(state, self._store.queue)
        await self.rollback()
        self._store.vault.announce()

    async def rollback(self) -> None:
        for workflow in self._staged:
            self._store.vault.staged.pop(workflow, None)
        self._staged.clear()


class DoubleHarness(Harness[Effect]):
    """The double in memory. A mutant replaces one of its parts."""

    name = "double"
    offers: ClassVar[frozenset[Hook]] = frozenset(
        {"clock", "codec", "queues", "effects", "wire", "joined", "meter", "restart", "loss", "halves", "retention"}
    )
    patience = timedelta(seconds=6)
    checkpointer: type[DoubleCheckpointer] = DoubleCheckpointer
    scheduler: type[DoubleScheduler] = DoubleScheduler
    durable: type[DoubleDurable] = DoubleDurable
    machine: type[Machine] = Machine
    vault: type[Vault] = Vault
    transaction: type[DoubleApplication] = DoubleApplication

    def __init__(self) -> None:
        self._vaults: dict[str, Vault] = {}

    def vault_at(self, at: Opening) -> Vault:
        """Give the datastore of a case."""
        if at.name not in self._vaults:
            self._vaults = {at.name: self.vault(at.clock or SystemTime())}  # a case's is gone when the next begins
        return self._vaults[at.name]

    def built(self, at: Opening, link: Link) -> DoubleDurable:
        """Put an instance together."""
        codec = at.codec or JsonCodec()
        checkpointer = self.checkpointer(link, at.queue, at.lease, codec, self.machine)
        return self.durable(checkpointer, self.scheduler(link, at.queue, at.lease, codec, self.machine))

    def given(self, durable: DoubleDurable) -> Stores[Effect]:
        """Give what `open` gives of an instance."""
        return durable

    @asynccontextmanager
    async def open(self, at: Opening, /) -> AsyncGenerator[Stores[Effect]]:
        vault = self.vault_at(at)
        if at.retention is not None:
            with vault.transaction() as content:
                content.retention = at.retention
        yield self.given(self.built(at, Link(vault)))

    def effects(self, at: Opening, /) -> DoubleEffects:
        return DoubleEffects(self.vault_at(at))

    async def lose_claim(self, at: Opening, workflow: str, /) -> None:
        with self.vault_at(at).transaction() as content:
            content.ledgers[workflow] = replace(content.ledgers[workflow], claim=None)

    @asynccontextmanager
    async def mismatched(self, at: Opening, /) -> AsyncGenerator[Callable[[], object]]:
        one, other = (self.built(at, Link(self.vault_at(at))) for _ in range(2))
        yield lambda: self.durable(one.checkpointer, other.scheduler)

    @asynccontextmanager
    async def wire(self, at: Opening, /) -> AsyncGenerator[Wire]:
        link = Link(self.vault_at(at))
        yield DoubleWire(self.given(self.built(at, link)), link)

    @asynccontextmanager
    async def application(self, at: Opening, /) -> AsyncGenerator[Application]:
        transaction = self.transaction(self.built(at, Link(self.vault_at(at))))
        yield transaction
        await transaction.rollback()

    @asynccontextmanager
    async def meter(self, at: Opening, stores: Durable[Effect], /) -> AsyncGenerator[Meter]:
        yield DoubleMeter(self.vault_at(at))


class SplitHarness(DoubleHarness):
    """The double as a stranger would give it: two halves, which the kit puts together."""

    name = "split double"
    offers = frozenset({"clock", "codec", "queues", "effects", "wire", "meter", "restart", "loss", "retention"})

    def given(self, durable: DoubleDurable) -> Stores[Effect]:
        return durable.checkpointer, durable.scheduler


class FileHarness(DoubleHarness):
    """The double in a file, for what needs several processes or a process that dies."""

    name = "file double"
    offers = frozenset({"codec", "queues", "effects", "restart", "processes", "skew"})
    patience = timedelta(seconds=15)
    window = timedelta(milliseconds=300)

    def vault_at(self, at: Opening) -> Vault:
        return FileVault(SystemTime(), at.folder / "vault")
