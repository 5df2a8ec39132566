"""One effect and the record of what it gave, in a task of its own: the part of a step that outlives its cancellation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta

from durable_core._thread import ReturnedLate
from durable_core.errors import DurableError, Interruption, OutcomeUnknown, StepFailed

MAX_MESSAGE = 4_000


class Work:
    """Runs an effect, then keeps what came of it. [RUN-STEP-KEPT] [RUN-STEP-FAILURES] [RUN-STEP-TIMEOUT] [RUN-STEP-EXIT]

    `keep` records a value, `keep_failure` a failure of one of the types in `failures`. Until the effect has returned,
    cancelling the step cancels the effect; from then on the record is waited for, as long as `window_left` says.
    """

    def __init__(
        self,
        workflow: str,
        key: str,
        effect: Callable[[], Awaitable[object]],
        keep: Callable[[object], Awaitable[object]],
        keep_failure: Callable[[str, str], Awaitable[StepFailed]],
        *,
        failures: tuple[type[Exception], ...],
        at_most_once: bool,
        timeout: timedelta | None,
        window_left: Callable[[], float],
    ) -> None:
        self._workflow, self._key = workflow, key
        self._effect, self._keep, self._keep_failure = effect, keep, keep_failure
        self._failures, self._at_most_once, self._timeout = failures, at_most_once, timeout
        self._window_left = window_left
        self._task: asyncio.Task[object] | None = None
        self._returned = self._late = False

    async def done(self) -> object:
        """Give what `keep` gave; raise what the effect raised, `StepFailed`, or `OutcomeUnknown`."""
        loop = asyncio.get_running_loop()
        task = _started(self._run(), loop)
        timer = None if self._timeout is None else loop.call_later(self._timeout.total_seconds(), self._expire)
        cancelled: asyncio.CancelledError | None = None
        try:
            while not task.done():
                try:
                    await asyncio.wait((task,))
                except asyncio.CancelledError as error:
                    cancelled = error
                    self._cancel(task, loop)
        finally:
            if timer is not None:
                timer.cancel()
        if cancelled is not None:
            self._raise_lost(task)
            raise cancelled
        return task.result()

    def _raise_lost(self, task: asyncio.Task[object]) -> None:
        """A lost claim outranks the cancellation that came meanwhile."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Interruption):
            raise error

    def _cancel(self, task: asyncio.Task[object], loop: asyncio.AbstractEventLoop) -> None:
        if not self._returned:
            task.cancel()
        else:
            # The record is given up one window after the last sign of life: somebody else may hold the workflow by then.
            loop.call_later(max(0.0, self._window_left()), task.cancel)

    def _expire(self) -> None:
        if not self._returned and self._task is not None:
            self._late = True
            self._task.cancel()

    async def _run(self) -> object:
        self._task = asyncio.current_task()
        try:
            value = await self._effect()
        except ReturnedLate as late:
            value = late.value
        except asyncio.CancelledError:
            if not self._late:
                raise
            error = TimeoutError(f"step {self._key!r} of workflow {self._workflow!r} took longer than {self._timeout}")
            return await self._fail(error)
        except SystemExit as left:
            return await self._fail(self._exit(left))
        except GeneratorExit as left:
            if is_closing(self._task):
                raise
            return await self._fail(self._exit(left))
        except Exception as error:
            return await self._fail(error)
        self._returned = True
        return await self._keep(value)

    def _exit(self, left: BaseException) -> DurableError:
        error = DurableError(f"step {self._key!r} of workflow {self._workflow!r} raised {type(left).__name__}({left})")
        error.__cause__ = left
        return error

    async def _fail(self, error: Exception) -> object:
        if isinstance(error, self._failures):
            self._returned = True
            raise await self._keep_failure(type(error).__name__, message_of(error)) from error
        if self._at_most_once:
            raise OutcomeUnknown(self._workflow, self._key) from error
        raise error


def message_of(error: BaseException) -> str:
    """Give an exception's message as text that every store can hold, in at most 4 000 characters, whatever its `str` does."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"<{type(error).__name__} whose str raises {type(broken).__name__}>"
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."


def _started(coroutine: Coroutine[object, object, object], loop: asyncio.AbstractEventLoop) -> asyncio.Task[object]:
    # An eager task runs to its first real wait at once, which saves two turns of the loop.
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


def is_closing(task: asyncio.Task[object] | None) -> bool:
    """Say whether the coroutine is being thrown away rather than run by its task."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True
