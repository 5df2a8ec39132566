"""Blocking functions as effects: in a thread, and waited for."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

from durable_core.errors import Misconfigured

P = ParamSpec("P")
R = TypeVar("R")

executor: contextvars.ContextVar[Executor | None] = contextvars.ContextVar("durable_executor", default=None)


class ReturnedLate(asyncio.CancelledError):
    """The effect was cancelled and could not be stopped; this is what it gave."""

    def __init__(self, effect: object, value: object) -> None:
        super().__init__()
        self.effect, self.value = effect, value


def in_thread(function: Callable[P, R], /) -> Callable[P, Awaitable[R]]:
    """Make an effect of a blocking function: `run.step("resized", in_thread(resize), str, path)`.

    It runs in a thread, in the executor of the worker, so that the event loop can renew the claim. A thread cannot be stopped:
    when the step is cancelled or times out, the function is waited for, and what it returns is recorded. [RUN-STEP-KEPT]
    [RUN-CLOSED]

    Raises: `Misconfigured` for an async function.
    """
    if inspect.iscoroutinefunction(function):
        raise Misconfigured(f"{function.__qualname__} is async: give it to the step as it is, without in_thread")

    @functools.wraps(function)
    async def effect(*args: P.args, **kwargs: P.kwargs) -> R:
        context = contextvars.copy_context()

        def call() -> R:
            try:
                return context.run(function, *args, **kwargs)
            except StopIteration as stop:  # which no future can hold
                raise RuntimeError(f"{function!r} raised StopIteration") from stop

        future = asyncio.get_running_loop().run_in_executor(executor.get(), call)
        cancelled = False
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError:
                cancelled = True
        value = future.result()
        if cancelled:
            raise ReturnedLate(effect, value)
        return value

    return effect
