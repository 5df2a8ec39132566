"""Signals as calls in the event loop, with every handler put back as it was."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from signal import Signals
from types import FrameType

from durable_core.observer import log


@contextmanager
def signals_call(call: Callable[[], object], signals: Sequence[Signals]) -> Generator[None]:
    """Have `call` called in the running loop for each signal that comes.

    It needs nothing of the loop, so that it works on loops without signal handlers; handlers of the loop's own are called too.
    Outside the main thread Python allows no handlers: that is logged, and nothing else. [RUN-WORK-DRAIN]
    """
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(call)

    before: dict[Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    try:
        for number in signals:
            if threading.current_thread() is not threading.main_thread():
                log.warning(
                    "signals cannot be handled outside the main thread: call drain()", extra={"durable_signal": number.name}
                )
                continue
            before[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
