"""Blocking functions as effects: in a thread, and waited for."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

executor: contextvars.ContextVar[Executor | None] = contextvars.ContextVar("durable_executor", default=None)


class ReturnedLate(asyncio.CancelledError):
    """The effect was cancelled and could not be stopped; this is what it gave."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


def in_thread(function: Callable[P, R], /) -> Callable[P, Awaitable[R]]:
    """Make an effect of a blocking function: `run.step("resized", in_thread(resize), str, path)`.

    It runs in a thread, in the executor of the worker, so that the event loop can renew the claim. A thread cannot be stopped: when the step
    is cancelled or times out, the function is waited for, and what it returns is recorded. [RUN-STEP-KEPT] [RUN-CLOSED]
    """

    @functools.wraps(function)
    async def effect(*args: P.args, **kwargs: P.kwargs) -> R:
        context = contextvars.copy_context()
        call = functools.partial(context.run, function, *args, **kwargs)
        future = asyncio.get_running_loop().run_in_executor(executor.get(), call)
        cancelled = False
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                if future.cancelled():
                    raise
                cancelled = True
        if cancelled and future.exception() is None:
            raise ReturnedLate(future.result())
        return future.result()

    return effect
