"""One effect and the record of what it gave, in a task of its own: the part of a step that outlives its cancellation."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import timedelta
from typing import Generic, TypeVar

from durable_core._thread import ReturnedLate
from durable_core.errors import DurableError, Interruption, Misconfigured, OutcomeUnknown, StepFailed

K = TypeVar("K")
T = TypeVar("T")

MAX_MESSAGE = 4_000


class Work(Generic[K]):
    """Runs an effect, then keeps what came of it. [RUN-STEP-KEPT] [RUN-STEP-FAILURES] [RUN-STEP-TIMEOUT] [RUN-STEP-EXIT]

    `begin` is awaited before the effect, which starts without a turn of the loop in between. `keep` records a value,
    `keep_failure` a failure of one of the types in `failures`. Until the effect has returned, cancelling the step cancels the
    effect; from then on the record is waited for, until `window_left` says that no seconds are left.
    """

    def __init__(
        self,
        workflow: str,
        key: str,
        effect: Callable[[], Awaitable[object]],
        keep: Callable[[object], Awaitable[K]],
        keep_failure: Callable[[str, str], Awaitable[StepFailed]],
        *,
        failures: tuple[type[Exception], ...],
        at_most_once: bool,
        timeout: timedelta | None,
        window_left: Callable[[], float],
        begin: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._workflow, self._key = workflow, key
        self._begin, self._effect, self._keep, self._keep_failure = begin, effect, keep, keep_failure
        self._failures, self._at_most_once, self._timeout = failures, at_most_once, timeout
        self._window_left = window_left
        self._task: asyncio.Task[object] | None = None
        self._returned = self._late = self._asked = False
        self._timer: asyncio.TimerHandle | None = None

    async def done(self) -> K:
        """Give what `keep` gave; raise what `begin` or the effect raised, `StepFailed`, or `OutcomeUnknown`."""
        task = _started(self._run())
        cancelled: asyncio.CancelledError | None = None
        try:
            try:
                if not task.done():
                    await _End(task, self._cancel)
                return task.result()
            except asyncio.CancelledError as error:
                cancelled = error
            if not self._asked:
                raise self._unrecorded(DurableError(f"the effect of {self!r} was cancelled, and not by this library"))
            raise _interruption(task) or cancelled
        finally:
            self._set_timer(None)
            self._task = None
            del task, cancelled  # an exception holds this frame, which would hold the exception

    def __repr__(self) -> str:
        return f"step {self._key!r} of workflow {self._workflow!r}"

    def _cancel(self, task: asyncio.Task[K]) -> None:
        if not self._returned:
            self._asked = True
            task.cancel()
        elif not self._asked:
            self._asked = True
            self._give_up()

    def _give_up(self) -> None:
        """End the wait for the record, once the window is over: somebody else may hold the workflow by then."""
        if self._task is None:
            return
        left = self._window_left()
        if left > 0:
            self._set_timer(asyncio.get_running_loop().call_later(left, self._give_up))
        else:
            self._task.cancel()

    def _expire(self) -> None:
        if self._task is not None and not self._returned and not self._asked:
            self._late = True
            self._task.cancel()

    def _set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    async def _run(self) -> K:
        self._task = asyncio.current_task()
        if self._begin is not None:
            await self._begin()
        if self._timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout.total_seconds(), self._expire)
        try:
            value = await self._effect()
        except asyncio.CancelledError as ended:
            if isinstance(ended, ReturnedLate) and ended.effect is _function(self._effect):
                value = ended.value
            elif self._late:
                raise await self._failed(TimeoutError(f"{self!r} took longer than {self._timeout}")) from ended
            else:
                raise
        except SystemExit as left:
            raise await self._failed(DurableError(f"{self!r} raised SystemExit({left})")) from left
        except GeneratorExit as left:
            if is_closing(self._task):
                raise
            raise await self._failed(DurableError(f"{self!r} raised GeneratorExit")) from left
        except Exception as error:
            if not self._at_most_once and not isinstance(error, self._failures):
                raise
            raise await self._failed(error) from error
        self._has_returned()
        return await self._keep(value)

    async def _failed(self, error: Exception) -> Exception:
        """Give what the step raises for an effect that raised."""
        if not isinstance(error, self._failures):
            return self._unrecorded(error)
        self._has_returned()
        return await self._keep_failure(type(error).__name__, message_of(error))

    def _unrecorded(self, error: Exception) -> Exception:
        return OutcomeUnknown(self._workflow, self._key) if self._at_most_once else error

    def _has_returned(self) -> None:
        """From here on the record is what matters, also to a step that was cancelled already."""
        self._returned = True
        self._set_timer(None)
        if self._asked:
            self._give_up()


def refuse_effect(key: str, effect: object) -> None:
    """Refuse, with `Misconfigured`, what is no async function: a call of one, a plain function."""
    if type(effect) is types.FunctionType and effect.__code__.co_flags & inspect.CO_COROUTINE:
        return  # which nearly every effect is; what others are is looked at below
    if inspect.iscoroutine(effect) or inspect.isawaitable(effect):
        if inspect.iscoroutine(effect):
            effect.close()
        raise Misconfigured(f"step {key!r} was given a call: pass the function, not its call: step({key!r}, f, parse, *args)")
    if not callable(effect):
        raise Misconfigured(f"step {key!r} was given {type(effect).__name__}, and an effect is an async function")
    function = _function(effect)
    if isinstance(function, types.MethodType):
        function = function.__func__
    if isinstance(function, (types.FunctionType, types.BuiltinFunctionType)) and not _is_async(function):
        raise Misconfigured(
            f"step {key!r} was given a plain function: write `async def`, give in_thread(f) for one that blocks, "
            "and instead of a lambda give the function and its arguments: step(key, f, parse, *args)"
        )


def _function(effect: object) -> object:
    while isinstance(effect, functools.partial):
        effect = effect.func
    return effect


def _is_async(function: Callable[..., object]) -> bool:
    # A decorator may wrap a plain function in an async one, as in_thread does, or the other way round.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inspect.unwrap(function))


def message_of(error: BaseException) -> str:
    """Give an exception's message as text that every store can hold, in at most 4 000 characters, whatever its `str` does."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"<{type(error).__name__} whose str raises {type(broken).__name__}>"
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."


class _End:
    """The end of a task, as an awaitable. Who is cancelled while awaiting it tells `ask`, and goes on waiting.

    It is to asyncio what a future is, and so costs no turn of the loop as a wait for a task beside this one would.
    """

    def __init__(self, task: asyncio.Task[T], ask: Callable[[asyncio.Task[T]], None]) -> None:
        self._asyncio_future_blocking = False
        self.get_loop, self.add_done_callback = task.get_loop, task.add_done_callback
        self._ask: Callable[[], None] = functools.partial(ask, task)

    def __await__(self) -> Generator[_End]:
        self._asyncio_future_blocking = True
        try:
            yield self
        finally:
            del self  # an exception of the task's holds this frame

    def cancel(self, msg: object = None) -> bool:
        """Leave the cancellation to be raised once the task has ended."""
        self._ask()
        return False


def _started(coroutine: Coroutine[object, object, T]) -> asyncio.Task[T]:
    loop = asyncio.get_running_loop()
    # An eager task runs to its first real wait at once, which saves two turns of the loop.
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


def _interruption(task: asyncio.Task[T]) -> BaseException | None:
    """Give the loss of the claim that the task ended with: it outranks a cancellation."""
    error = None if task.cancelled() else task.exception()
    return error if isinstance(error, Interruption) else None


def is_closing(task: asyncio.Task[object] | None) -> bool:
    """Say whether the coroutine is being thrown away rather than run by its task."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True
