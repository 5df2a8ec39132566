"""The other process: opens a case's datastore by the harness's name, and does what its parent asks over a pipe."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import pickle
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

from durable_conformance.harness import AnyHarness, Effects, Opening
from durable_conformance.pairs import paired


@dataclass(frozen=True, slots=True)
class Order:
    """How a child is to open the datastore: by whom, and where."""

    harness: str
    at: Opening


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a store's method; an argument that is an `EffectOf` becomes an effect of the child's own."""

    number: int
    part: str
    method: str
    arguments: tuple[object, ...]
    options: dict[str, object]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the call gave, or raised."""

    number: int
    answer: object
    raised: BaseException | None


@dataclass(frozen=True, slots=True)
class EffectOf:
    """An effect that adds to a counter and gives a value; or one during which the child's process is killed."""

    counter: str
    gives: object = "done"
    kills: bool = False


def moment_of(text: str) -> datetime:
    """Give the moment that a process with a wrong clock sent."""
    return datetime.fromisoformat(text)


def found(name: str) -> AnyHarness:
    """Make the harness that `module:class` or `path/of/a/file.py:class` names."""
    module, _, path = name.rpartition(":")
    if module.endswith(".py"):
        spec = importlib.util.spec_from_file_location(f"harness_{abs(hash(module))}", module)
        if spec is None or spec.loader is None:
            raise ImportError(f"there is no harness in {module}")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
    else:
        loaded = importlib.import_module(module)
    made: object = loaded
    for part in path.split("."):
        made = getattr(made, part)
    if not (isinstance(made, type) and issubclass(made, AnyHarness)):
        raise ImportError(f"{name} is not a Harness")
    return made()


def read(pipe: BinaryIO) -> object:
    """Read one message. Raises: `EOFError` when the other side is gone."""
    size = pipe.read(4)
    if len(size) < 4:
        raise EOFError
    return pickle.loads(pipe.read(int.from_bytes(size, "big")))


def packed(message: object) -> bytes:
    """Give one message as bytes."""
    body = pickle.dumps(message)
    return len(body).to_bytes(4, "big") + body


class Child:
    """Carries out requests, each in a task of its own."""

    def __init__(self, harness: AnyHarness, at: Opening, output: BinaryIO) -> None:
        self._harness, self._at, self._output = harness, at, output

    async def serve(self, requests: asyncio.Queue[Request | None]) -> None:
        """Open the datastore and carry out requests until there are no more."""
        async with AsyncExitStack() as exits:
            durable = paired(await exits.enter_async_context(self._harness.open(self._at)))
            parts: dict[str, object] = {"durable": durable, "checkpointer": durable.checkpointer, "scheduler": durable.scheduler}
            self._send(Reply(0, "open", None))
            async with asyncio.TaskGroup() as group:
                while (request := await requests.get()) is not None:
                    group.create_task(self._answer(parts[request.part], request))

    async def _answer(self, part: object, request: Request) -> None:
        try:
            arguments = [self._effect(one) if isinstance(one, EffectOf) else one for one in request.arguments]
            given = getattr(part, request.method)(*arguments, **request.options)
            reply = Reply(request.number, await given if asyncio.iscoroutine(given) else given, None)
        except asyncio.CancelledError:
            raise
        except BaseException as raised:
            reply = Reply(request.number, None, raised)
        self._send(reply)

    def _effect(self, wanted: EffectOf) -> object:
        effects = cast("Effects[object]", self._harness.effects(self._at))  # for stores of the same harness
        if not wanted.kills:
            return effects.add(wanted.counter, wanted.gives)
        made = effects.inside(wanted.counter, lambda: os.kill(os.getpid(), signal.SIGKILL))
        return made if made is not None else effects.add(wanted.counter, wanted.gives)

    def _send(self, reply: Reply) -> None:
        try:
            message = packed(reply)
            pickle.loads(message[4:])
        except Exception:
            message = packed(Reply(reply.number, None, RuntimeError(repr(reply.raised or reply.answer))))
        self._output.write(message)
        self._output.flush()


def main() -> None:
    """Serve the parent that started this process, until it closes the pipe."""
    source = os.fdopen(os.dup(0), "rb")
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the store prints does not go into the pipe
    order = read(source)
    assert isinstance(order, Order)
    asyncio.run(_run(Child(found(order.harness), order.at, output), source))


async def _run(child: Child, source: BinaryIO) -> None:
    requests: asyncio.Queue[Request | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def listen() -> None:
        try:
            while True:
                request = read(source)
                assert isinstance(request, Request)
                loop.call_soon_threadsafe(requests.put_nowait, request)
        except EOFError:
            os._exit(0)  # the parent is gone: nothing is left running

    listening = loop.run_in_executor(None, listen)
    await child.serve(requests)
    await listening


def search_path() -> list[str]:
    """Give where this process finds modules, for a child to find the same."""
    return [str(Path(part).resolve()) if part else os.getcwd() for part in sys.path]
