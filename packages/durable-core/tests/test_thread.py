"""Blocking functions as effects."""

import asyncio
import contextvars
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from durable_core._thread import executor, in_thread
from durable_core.errors import DurableError, Misconfigured, StepFailed
from durable_core.outcome import Completed
from durable_core.run import Run
from probe import Effect, Probe


class Blocking:
    """A function that blocks its thread until it may go on."""

    def __init__(self, answer: object) -> None:
        self.began, self.go, self.done = threading.Event(), threading.Event(), threading.Event()
        self._answer = answer

    def __call__(self) -> object:
        self.began.set()
        assert self.go.wait(10)
        self.done.set()
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


async def began(blocking: Blocking) -> None:
    assert await asyncio.to_thread(blocking.began.wait, 10)


def soon(blocking: Blocking) -> None:
    asyncio.get_running_loop().call_later(0.02, blocking.go.set)


def shout(text: str, times: int = 1) -> str:
    return text.upper() * times


async def test_thread_runs_a_blocking_function_as_an_effect(probe: Probe) -> None:
    """RUN-STEP: `in_thread(f)` is an effect; partials and keyword arguments work."""
    names: list[str] = []

    def where() -> str:
        names.append(threading.current_thread().name)
        return "there"

    async def body(run: Run) -> list[str]:
        return [
            await run.step("a", in_thread(shout), str, "hey", 1),
            await run.step("b", functools.partial(in_thread(shout), times=2), str, "ho"),
            await run.step("c", in_thread(where), str),
        ]

    for _ in range(2):
        assert await probe.advance(body) == Completed(["HEY", "HOHO", "there"])
    assert names != [threading.current_thread().name]
    assert len(names) == 1


async def test_thread_leaves_the_loop_free(probe: Probe) -> None:
    """RUN-STEP: siblings work while a thread blocks."""
    blocking = Blocking("done")

    async def sibling() -> str:
        await began(blocking)
        blocking.go.set()
        return "worked"

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(run.step("a", in_thread(blocking), str))
            group.create_task(run.step("b", sibling, str))
        return first.result()

    assert await probe.advance(body) == Completed("done")


async def test_thread_is_waited_for_when_the_pass_is_cancelled(probe: Probe) -> None:
    """RUN-CLOSED: a thread cannot be stopped; what it returns is recorded, and then the cancellation is raised."""
    blocking = Blocking("done")

    async def body(run: Run) -> str:
        return await run.step("a", in_thread(blocking), str)

    task = asyncio.create_task(probe.advance(body))
    await began(blocking)
    for _ in range(3):
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
    assert not task.done()
    blocking.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert blocking.done.is_set()
    assert await probe.keys() == ["a"]


async def test_thread_is_waited_for_when_it_times_out_and_its_value_stands(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: the effect returned in spite of the timeout, so the step returns the value."""
    blocking = Blocking("done")

    async def body(run: Run) -> str:
        soon(blocking)
        return await run.step("a", in_thread(blocking), str, timeout=timedelta(milliseconds=1))

    assert await probe.advance(body) == Completed("done")
    assert await probe.keys() == ["a"]


async def test_thread_inside_an_effect_does_not_give_its_value_for_the_effect_s(probe: Probe) -> None:
    """RUN-STEP: an effect that was cancelled while it awaited a thread has not returned, and records nothing."""
    blocking = Blocking("raw")

    async def effect() -> str:
        raw = await in_thread(blocking)()
        return f"cooked {raw}"

    async def body(run: Run) -> str:
        return await run.step("a", effect, str)

    task = asyncio.create_task(probe.advance(body))
    await began(blocking)
    task.cancel()
    soon(blocking)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert blocking.done.is_set()
    assert await probe.keys() == []


async def test_thread_inside_an_effect_that_times_out_is_a_timeout(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: and not the value of the thread."""
    blocking = Blocking("raw")

    async def effect() -> str:
        return f"cooked {await in_thread(blocking)()}"

    async def body(run: Run) -> str:
        soon(blocking)
        return await run.step("a", effect, str, timeout=timedelta(milliseconds=1), failures=(TimeoutError,))

    for _ in range(2):
        with pytest.raises(StepFailed, match="TimeoutError"):
            await probe.advance(body)


async def test_thread_that_fails_after_the_cancellation_has_failed(probe: Probe) -> None:
    """RUN-STEP-FAILURES: a failure that is an outcome is recorded, however late."""
    blocking = Blocking(ValueError("no"))

    async def body(run: Run) -> str:
        return await run.step("a", in_thread(blocking), str, failures=(ValueError,))

    task = asyncio.create_task(probe.advance(body))
    await began(blocking)
    task.cancel()
    soon(blocking)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await probe.keys() == ["failed:a"]


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("no"), SystemExit(1)])
async def test_thread_raises_what_the_function_raises(probe: Probe, error: BaseException) -> None:
    """RUN-STEP: also what no future can hold, and what would end the loop."""

    def failing() -> str:
        raise error

    async def body(run: Run) -> str:
        return await run.step("a", in_thread(failing), str)

    with pytest.raises((ValueError, RuntimeError, DurableError)) as raised:
        await probe.advance(body)
    assert error in (raised.value, raised.value.__cause__)


async def test_thread_sees_the_context_of_the_body(probe: Probe) -> None:
    """RUN-STEP: context variables go along, and the thread's own stay there."""
    variable = contextvars.ContextVar("variable", default="unset")

    def function() -> str:
        seen = variable.get()
        variable.set("thread")
        return seen

    async def body(run: Run) -> str:
        variable.set("body")
        return await run.step("a", in_thread(function), str) + variable.get()

    assert await probe.advance(body) == Completed("bodybody")


async def test_thread_comes_from_the_executor_of_the_worker(probe: Probe) -> None:
    """RUN-CLOSED: whoever sets an executor has its threads used."""
    with ThreadPoolExecutor(1, thread_name_prefix="ours") as ours:
        token = executor.set(ours)

        async def body(run: Run) -> str:
            return await run.step("a", in_thread(lambda: threading.current_thread().name), str)

        outcome = await probe.advance(body)
        executor.reset(token)
    assert isinstance(outcome, Completed)
    assert outcome.value.startswith("ours")


def test_thread_refuses_an_async_function() -> None:
    """RUN-STEP: a thread would give a coroutine that nobody awaits."""

    async def effect() -> str:
        return "done"

    with pytest.raises(Misconfigured, match="without in_thread"):
        in_thread(effect)


async def test_thread_keeps_name_and_docstring() -> None:
    """RUN-STEP: an effect in a thread is told by its function's name."""
    assert getattr(in_thread(shout), "__name__", None) == "shout"


# Other threads, other loops


async def test_thread_with_a_loop_of_its_own_cannot_use_the_run(probe: Probe) -> None:
    """RUN-STEP: a run belongs to one event loop; elsewhere it refuses at once, and runs no effect."""
    effect = Effect("done")

    async def body(run: Run) -> None:
        def elsewhere() -> None:
            asyncio.run(run.step("inner", effect, str))

        with pytest.raises(Misconfigured, match="belongs to another event loop"):
            await asyncio.to_thread(elsewhere)

    assert await probe.advance(body) == Completed(None)
    assert effect.runs == 0
    assert await probe.keys() == []


async def test_thread_cannot_use_the_run_while_the_body_waits_for_it(probe: Probe) -> None:
    """RUN-STEP: also when the body's own task is at work at that moment, and holds up its loop."""
    effect = Effect("done")

    async def body(run: Run) -> None:
        refused = list[Misconfigured]()

        def elsewhere() -> None:
            try:
                asyncio.run(run.step("inner", effect, str))
            except Misconfigured as error:
                refused.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(refused) == 1

    assert await probe.advance(body) == Completed(None)
    assert effect.runs == 0
    assert await probe.keys() == []


async def test_thread_may_hand_a_call_to_the_body_s_loop(probe: Probe) -> None:
    """RUN-STEP: what runs in the body's loop is recorded under the right workflow."""
    effect = Effect("done")

    async def body(run: Run) -> str:
        loop = asyncio.get_running_loop()

        def elsewhere() -> str:
            return asyncio.run_coroutine_threadsafe(run.step("inner", effect, str), loop).result(10)

        return await run.step("outer", in_thread(elsewhere), str)

    for _ in range(2):
        assert await probe.advance(body) == Completed("done")
    assert await probe.keys() == ["inner", "outer"]
    assert effect.runs == 1
