"""What a store's author writes: how to open the store, and what else the kit may do to it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from durable_core.contract import CheckpointCodec, Checkpointer, Client, Durable, Scheduler

if TYPE_CHECKING:
    from durable_core.testing import ManualClock

E = TypeVar("E")

Hook: TypeAlias = Literal[
    "clock",
    "codec",
    "queues",
    "retention",
    "effects",
    "restart",
    "processes",
    "skew",
    "kill",
    "loss",
    "wire",
    "joined",
    "halves",
    "meter",
]
Stores: TypeAlias = Durable[E] | tuple[Checkpointer[E], Scheduler]


@dataclass(frozen=True, slots=True)
class Opening:
    """One datastore, and how a case wants it opened. Use what your store can use of it.

    `folder` is empty when the case begins and nobody else's; `name` is unique to the case (a letter, then letters and digits,
    at most 24), for stores that keep several datastores in one server: a schema, a database, a prefix. `address` is what
    `Harness.start` gave. `queue` names the queue and `lease` is the scheduler's. `codec` comes only to a harness that offers
    "codec", `retention` (how long a finished or discarded workflow is kept) to one that offers "retention", and `clock` to one
    that offers "clock", but for cases that need real time.
    """

    folder: Path
    name: str
    address: str
    queue: str
    lease: timedelta
    codec: CheckpointCodec[str] | None = None
    retention: timedelta | None = None
    clock: ManualClock | None = field(default=None, compare=False)


class Effects(Generic[E]):
    """Effects that count in the datastore, so that a case can see how often one was applied.

    A method gives `None` where the store has no such effect; `add`, `fail` and `applied` must be written.
    """

    def add(self, counter: str, gives: object, /) -> E | None:
        """Add one to the counter, and give a value: the record. `None` where an effect cannot give such a value."""
        raise NotImplementedError

    def fail(self, counter: str, /, *, first: bool) -> E:
        """Fail with an exception that is not ours: before the first write, or after adding one to the counter."""
        raise NotImplementedError

    async def applied(self, counter: str, /) -> int:
        """Give how often the counter stands added to, as another client of the datastore sees it now."""
        raise NotImplementedError

    def commit(self, counter: str, /) -> E | None:
        """Add one, and try to commit the transaction that the effect was handed."""
        return None

    def swallow(self, counter: str, /) -> E | None:
        """Add one, make the database refuse a statement, and hide its error."""
        return None

    def meanwhile(self, counter: str, call: Callable[[], Awaitable[object]], /) -> E | None:
        """Add one, and await the call before the effect ends: for stores whose effects interleave."""
        return None

    def inside(self, counter: str, call: Callable[[], object], /) -> E | None:
        """Add one, and call a function before the effect ends, where an effect is code of this process."""
        return None


class Wire(Protocol):
    """The same datastore through a connection that can lose replies; the client behind it repeats what it got no reply to."""

    @property
    def stores(self) -> object:
        """What `Harness.open` would give."""
        ...

    def lose_reply(self) -> None:
        """Let the next request be carried out, and its reply reach nobody."""
        ...

    @property
    def lost(self) -> int:
        """How many replies were lost."""
        ...


class Application(Protocol):
    """A transaction of the application, in its own database, where the store lives too."""

    @property
    def client(self) -> Client:
        """The store's client half, bound to the open transaction."""
        ...

    async def commit(self) -> None:
        """Commit the transaction."""
        ...

    async def rollback(self) -> None:
        """Roll it back."""
        ...


class Meter(Protocol):
    """What a store has done since the meter was read first."""

    @property
    def asked(self) -> int:
        """How many requests, statements or polls the store has made."""
        ...

    @property
    def touched(self) -> int:
        """How many rows, entries or commands they touched, in whatever unit grows with the work."""
        ...


class AnyHarness:
    """What the kit asks of a harness, whatever its store's effects are: see `Harness`."""

    name: ClassVar[str] = ""
    """What reports call the store; the class's name, without "Harness" at its end, where it is empty."""

    offers: ClassVar[frozenset[Hook]] = frozenset()
    """clock: `open` takes the store's time from `at.clock`. codec: it uses `at.codec`. queues: it uses `at.queue`. restart: the
    datastore survives that everybody closes it. retention: it lets finished and discarded workflows go after `at.retention`.
    processes: another process on this machine can open it. skew: its clock is not that of its clients' machines. The others
    are methods below."""

    lacks: ClassVar[Mapping[Hook, str]] = {}
    """What the store has no counterpart of, and why: "wire" where no client repeats a request, "kill" where there is no server,
    "loss" where a claim's storage cannot be lost, "retention" where nothing expires. Cases that need it are reported as not
    applicable, with the reason."""

    window: ClassVar[timedelta] = timedelta(milliseconds=300)
    """A liveness window that the store can tell from nothing on a busy machine; for stores without a clock to move."""

    patience: ClassVar[timedelta] = timedelta(seconds=30)
    """How long a case may take before it counts as stuck, and may keep the event loop from turning; a call that has nothing to
    wait for may take a sixth of it."""

    def start(self) -> str:
        """Start what the store needs, once a run, and give an address that every `Opening` carries."""
        return ""

    def stop(self) -> None:
        """Stop what `start` started."""

    def open(self, at: Opening, /) -> AbstractAsyncContextManager[object]:
        """Open the datastore: a `Durable`, or a checkpointer and a scheduler, which the kit puts into a `SplitDurable`.

        The first opening of a case makes the datastore; later ones, in this process or another, open the same.
        """
        raise NotImplementedError

    def effects(self, at: Opening, /) -> object:
        """Give effects for `transact`, and the way to count them. Offered as "effects"."""
        raise NotImplementedError

    async def restart(self, at: Opening, /) -> None:
        """Restart the server in good order, everybody having closed. Nothing to do where there is none. Offered as "restart"."""

    async def kill(self, at: Opening, /) -> None:
        """Kill the server with SIGKILL and start it again. Offered as "kill"."""
        raise NotImplementedError

    async def lose_claim(self, at: Opening, workflow: str, /) -> None:
        """Remove the storage of a workflow's claim, as eviction or expiry would. Offered as "loss"."""
        raise NotImplementedError

    def mismatched(self, at: Opening, /) -> AbstractAsyncContextManager[Callable[[], object]]:
        """Give a function that builds the store's own `Durable` of halves that do not share their connection. Offered as
        "halves".
        """
        raise NotImplementedError

    def wire(self, at: Opening, /) -> AbstractAsyncContextManager[Wire]:
        """Open the datastore through a connection that can lose replies. Offered as "wire"; leave it out where no client
        repeats.
        """
        raise NotImplementedError

    def application(self, at: Opening, /) -> AbstractAsyncContextManager[Application]:
        """Open a transaction of the application in the same database. Offered as "joined"."""
        raise NotImplementedError

    def meter(self, at: Opening, stores: Durable[object], /) -> AbstractAsyncContextManager[Meter]:
        """Count what these stores do from now on. Offered as "meter"."""
        raise NotImplementedError

    @classmethod
    def importable(cls) -> str:
        """Give the name by which another process finds this class: `module:class` or `path/of/a/file.py:class`."""
        path = inspect.getsourcefile(cls)
        if path is None or _origin(cls.__module__) == path:
            return f"{cls.__module__}:{cls.__qualname__}"
        return f"{path}:{cls.__qualname__}"

    @classmethod
    def title(cls) -> str:
        """Give what reports call the store."""
        return cls.name or cls.__name__.removesuffix("Harness") or cls.__name__


class Harness(AnyHarness, Generic[E]):
    """What the kit knows about a store. It is made without arguments, and only `open` must be written.

    Everything beyond is offered by naming it in `offers`; a case that needs what is not offered is reported as not covered,
    never as passed. A child process makes the harness anew, by the name that `importable` gives.
    """

    def open(self, at: Opening, /) -> AbstractAsyncContextManager[Stores[E]]:
        """Open the datastore: a `Durable`, or a checkpointer and a scheduler, which the kit puts into a `SplitDurable`.

        The first opening of a case makes the datastore; later ones, in this process or another, open the same.
        """
        raise NotImplementedError

    def effects(self, at: Opening, /) -> Effects[E]:
        """Give effects for `transact`, and the way to count them. Offered as "effects"."""
        raise NotImplementedError

    def meter(self, at: Opening, stores: Durable[E], /) -> AbstractAsyncContextManager[Meter]:
        """Count what these stores do from now on. Offered as "meter"."""
        raise NotImplementedError


def _origin(name: str) -> str | None:
    """Give the file that another process would find under a module's name, whatever this one has loaded under it."""
    found, path = "", None
    spec: ModuleSpec | None = None
    for part in name.split("."):
        found = f"{found}.{part}".removeprefix(".")
        specs = (finder.find_spec(found, path) for finder in sys.meta_path)
        spec = next((one for one in specs if one is not None), None)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return None if spec is None else spec.origin
