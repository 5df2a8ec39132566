"""Interrupts a case whose store keeps the event loop from turning, which no timeout of asyncio can."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType

_TICK = timedelta(milliseconds=100)


class Stuck(BaseException):
    """The event loop has not turned for too long: something runs, or blocks, without ever waiting."""


class Watchdog:
    """Raises `Stuck` in its thread when a loop there does not turn, and again as long as it does not.

    In the main thread that is done by a signal, which ends most calls that block. In another thread, and where there are no
    such signals, a call that blocks in C must come back first.
    """

    def __init__(self, patience: timedelta) -> None:
        self._patience = max(1, patience // _TICK)
        self._thread = threading.get_ident()
        self._by_signal = threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_kill")
        self._watching = False
        self._turns = 0
        self.seen = ""
        """Where the thread was when it was interrupted; empty when it never was."""

    @contextmanager
    def watching(self, loop: asyncio.AbstractEventLoop) -> Generator[None]:
        """Watch what a loop runs in a block. Raises: `Stuck`."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,), name="watchdog", daemon=True)
        before = signal.signal(signal.SIGURG, self._bark) if self._by_signal else None
        try:
            try:
                self._watching = True
                self._turn(loop)
                watcher.start()
                yield
            finally:
                self._watching = False  # from here on a late signal is ignored
                over.set()
                watcher.join()
                if self.seen and not self._by_signal:
                    self._take_back()
        finally:
            if self._by_signal:
                signal.signal(signal.SIGURG, before)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watching:
            loop.call_later(_TICK.total_seconds(), self._turn, loop)
            self._turns += 1

    def _watch(self, over: threading.Event) -> None:
        turns, missed = self._turns, 0
        while not over.wait(_TICK.total_seconds()):  # looks are counted, not seconds: a busy machine delays both threads
            turns, missed = self._turns, missed + 1 if self._turns == turns else 0
            if missed >= self._patience and self._watching:
                missed = 0
                self._interrupt()

    def _interrupt(self) -> None:
        self.seen = self.seen or _place(sys._current_frames().get(self._thread))  # pyright: ignore[reportPrivateUsage]
        if self._by_signal:
            signal.pthread_kill(self._thread, signal.SIGURG)
        else:
            self._send()

    def _send(self) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(Stuck))

    def _take_back(self) -> None:
        """Let an interrupt come that may still be on its way.

        Sending none in its place would have CPython 3.11 look for it for ever, and hang at the first function that is profiled.
        """
        try:
            self._send()
            while True:
                pass
        except Stuck:
            return

    def _bark(self, _number: int, _frame: FrameType | None) -> None:
        if self._watching and self.seen:
            raise Stuck(self.seen)


def _place(frame: FrameType | None) -> str:
    """Say where a thread is: its innermost calls, the innermost last."""
    calls = traceback.extract_stack(frame)[-3:]
    return ", ".join(f"{call.name} ({Path(call.filename).name}, line {call.lineno})" for call in calls) or "somewhere"
