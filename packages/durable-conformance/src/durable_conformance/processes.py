"""Other processes on the same datastore: started, asked, stopped, and killed."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import cast

from durable_conformance.child import Order, Reply, Request, packed, search_path
from durable_conformance.harness import AnyHarness, Opening
from durable_core.contract import Checkpointer, Durable, Scheduler

_BOOT = """
import sys
sys.path[:0] = {path!r}
skew = {skew!r}
if skew:
    import copyreg, datetime, time
    real, real_time, real_time_ns, wrong_by = datetime.datetime, time.time, time.time_ns, datetime.timedelta(seconds=skew)
    class Kind(type(real)):
        def __instancecheck__(self, thing):
            return isinstance(thing, real)
    class Skewed(real, metaclass=Kind):
        @classmethod
        def now(cls, tz=None):
            return real.now(tz) + wrong_by
        @classmethod
        def utcnow(cls):
            return real.utcnow() + wrong_by
    def reduced(moment):
        from durable_conformance.child import moment_of
        return moment_of, (moment.isoformat(),)
    for kind in (real, Skewed):
        copyreg.pickle(kind, reduced)
    datetime.datetime = Skewed
    time.time = lambda: real_time() + skew
    time.time_ns = lambda: real_time_ns() + int(skew * 1e9)
from durable_conformance.child import main
main()
"""


class Died(Exception):
    """The other process died with a call unanswered."""


class Remote:
    """One store of another process; its methods are those of the store."""

    def __init__(self, process: Process, part: str) -> None:
        self._process, self._part = process, part

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        return lambda *arguments, **options: self._process.ask(self._part, name, arguments, options)


class Process:
    """Another process with the datastore open."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._listening = asyncio.ensure_future(self._listen())

    @classmethod
    async def started(cls, harness: AnyHarness, at: Opening, *, skew: float = 0.0) -> Process:
        """Start another process, which opens the datastore; its own clocks are wrong by so many seconds."""
        code = _BOOT.format(path=search_path(), skew=skew)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**26
        )
        made = cls(process)
        ready = made._promise(0)
        made._send(Order(harness.importable(), replace(at, clock=None)))
        await ready
        return made

    @property
    def checkpointer(self) -> Checkpointer[object]:
        """Its checkpointer."""
        return cast(Checkpointer[object], Remote(self, "checkpointer"))  # every method goes to the store there

    @property
    def scheduler(self) -> Scheduler:
        """Its scheduler."""
        return cast(Scheduler, Remote(self, "scheduler"))  # every method goes to the store there

    @property
    def durable(self) -> Durable[object]:
        """Its durable."""
        return cast("Durable[object]", Remote(self, "durable"))  # every method goes to the store there

    async def ask(self, part: str, method: str, arguments: tuple[object, ...], options: Mapping[str, object]) -> object:
        """Have a method called there. Raises: what it raises there, and `Died`."""
        self._asked += 1
        promise = self._promise(self._asked)
        self._send(Request(self._asked, part, method, arguments, dict(options)))
        return await promise

    def freeze(self) -> None:
        """Stop it where it is: SIGSTOP."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on: SIGCONT."""
        os.kill(self._process.pid, signal.SIGCONT)

    async def kill(self) -> None:
        """Kill it: SIGKILL."""
        if self._process.returncode is None:
            try:
                os.kill(self._process.pid, signal.SIGKILL)  # Process.kill() would wait for it behind asyncio's back
            except ProcessLookupError:
                pass
        await self._process.wait()
        await asyncio.wait([self._listening])

    async def aclose(self) -> None:
        """End it, whatever it is doing."""
        await self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        for promise in self._waiting.values():
            promise.cancel()

    def _promise(self, number: int) -> asyncio.Future[object]:
        promise: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[number] = promise
        if self._listening.done():
            promise.set_exception(Died())
        return promise

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(packed(message))

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                size = await self._process.stdout.readexactly(4)
                reply = pickle.loads(await self._process.stdout.readexactly(int.from_bytes(size, "big")))
                assert isinstance(reply, Reply)
                self._settle(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        for promise in self._waiting.values():
            if not promise.done():
                promise.set_exception(Died())
                promise.exception()  # nobody need ask

    def _settle(self, reply: Reply) -> None:
        promise = self._waiting.pop(reply.number, None)
        if promise is None or promise.done():
            return
        if reply.raised is None:
            promise.set_result(reply.answer)
        else:
            promise.set_exception(reply.raised)
