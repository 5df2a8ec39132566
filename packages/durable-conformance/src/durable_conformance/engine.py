"""Runs cases against a harness: the one engine behind pytest, the command line and `check`."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
import uuid
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeAlias

from durable_conformance.bench import LONG, Bench
from durable_conformance.case import Body, Case
from durable_conformance.expect import Broken, NotApplicable, NotShown, good_time
from durable_conformance.harness import AnyHarness, Opening
from durable_conformance.watchdog import Stuck, Watchdog
from durable_core.contract import Description
from durable_core.testing import ManualClock

Verdict: TypeAlias = Literal["held", "broken", "error", "gap", "closed", "not covered", "not applicable"]

Judged: TypeAlias = tuple[Verdict, str, str]
"""The verdict, what was promised, and what was seen."""

_STUCK = "stuck: "

_runs = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case: held, broken, error (the store raised what nobody promised), gap (declared, and not held), closed
    (a declared gap that holds: remove it), not covered (a hook is missing), not applicable (the store says that it has no
    such thing)."""

    case: Case
    verdict: Verdict
    seen: str = ""
    promised: str = ""
    seconds: float = 0.0
    seed: str = ""

    def __str__(self) -> str:
        clause = self.case.clause
        lines = [f"{clause.id}: {clause.text}", f"this case: {self.case.promise}"]
        if self.promised:
            lines.append(f"promised: {self.promised}")
        lines += [
            f"seen: {self.seen}",
            f"read: durable_core.contract, {clause.where}; docs/reference/contract.md#{clause.anchor}",
        ]
        return "\n".join([*lines, f"seed: {self.seed}"])


class Session:
    """One run over a harness: started once, stopped at the end."""

    def __init__(self, harness: AnyHarness, *, seed: str = "0", long: bool = False) -> None:
        self.harness, self.seed, self.long = harness, seed, long
        self._address: str | None = None
        self._said: Description | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._address is not None:
            self._address = None
            self.harness.stop()

    def run(self, case: Case) -> Result:
        """Run one case on a datastore of its own."""
        outside = self.outside(case)
        if outside is not None:
            return outside
        began = time.perf_counter()
        if case.apart:
            verdict, promised, seen = self._driven(case)
        else:
            verdict, promised, seen = self._alone(case.name, case.body, real=case.real, short=case.short)
        if verdict == "broken" and case.short and not self._manual(case.real) and not seen.startswith(_STUCK):
            # A window may have run out because the machine was busy: it is broken if a longer one shows the same.
            verdict, promised, seen = self._alone(case.name, case.body, real=case.real, short=True, times=4)
        return Result(case, verdict, seen, promised, time.perf_counter() - began, self.seed)

    def outside(self, case: Case) -> Result | None:
        """Say why a case cannot be run here, if it cannot."""
        if case.when is not None and not case.when(self.said):
            return Result(case, "not applicable", "describe() says that the store has no such thing")
        missing = case.needs - self.harness.offers
        lacking = missing & self.harness.lacks.keys()
        if lacking:
            return Result(case, "not applicable", "; ".join(self.harness.lacks[hook] for hook in sorted(lacking)))
        if missing:
            return Result(case, "not covered", f"the harness does not offer {', '.join(sorted(missing))}")
        return None

    @property
    def said(self) -> Description:
        """What the store says of itself; it is asked once a run."""
        if self._said is None:
            said = list[Description]()

            async def ask(bench: Bench) -> None:
                said.append(await bench.durable.describe())

            verdict, _, seen = self._alone("describe", ask, real=False)
            if not said:
                raise RuntimeError(f"the store could not be opened to describe itself: {verdict}: {seen}")
            self._said = said[0]
        return self._said

    def _alone(self, name: str, body: Body, *, real: bool, short: bool = False, times: int = 1) -> Judged:
        """Run something on a datastore and in an event loop of its own, with windows so many times the harness's."""
        if self._address is None:
            self._address = self.harness.start()
        manual = self._manual(real)
        window = timedelta(seconds=30) if manual else self.harness.window * times
        with tempfile.TemporaryDirectory(prefix="durable-") as folder:
            at = self._opening(Path(folder), window if manual or short else LONG, manual=manual)
            return self._watched(self._shown(name, body, at, window))

    def _watched(self, shown: Coroutine[object, object, Judged]) -> Judged:
        """Run a case to its end in an event loop of its own, which must turn."""
        dog, judged = Watchdog(self.harness.patience), None
        runner = asyncio.Runner()
        try:
            with dog.watching(runner.get_loop()):
                try:
                    judged = runner.run(shown)
                finally:
                    runner.close()  # what the store left behind must end as well
        except Stuck:
            pass
        return judged if judged is not None and not dog.seen else _stuck(dog.seen)

    def _opening(self, folder: Path, lease: timedelta, *, manual: bool) -> Opening:
        assert self._address is not None
        unique = f"c{next(_runs)}x{uuid.uuid4().hex[:8]}"
        return Opening(folder, unique, self._address, f"q{unique}", lease, clock=ManualClock() if manual else None)

    def _driven(self, case: Case) -> Judged:
        """Run a state machine; each of its programs has a datastore and an event loop of its own."""
        from durable_conformance import machine

        if self._address is None:
            self._address = self.harness.start()
        manual = self._manual(False)

        async def opened(exits: AsyncExitStack) -> Bench:
            folder = exits.enter_context(tempfile.TemporaryDirectory(prefix="durable-"))
            at = self._opening(Path(folder), timedelta(seconds=30) if manual else LONG, manual=manual)
            bench = Bench(self.harness, at, self.seed, timedelta(seconds=30), exits, long=self.long)
            await bench.begin()
            return bench

        programs = 500 if self.long else 30 if manual else 10
        try:
            machine.driven(getattr(machine, case.apart), opened, self.seed, self.harness.patience, programs=programs)
        except Stuck as stuck:
            return _stuck(str(stuck))
        except BaseException as raised:
            return _judged(raised)
        return "held", "", ""

    def _manual(self, real: bool) -> bool:
        return "clock" in self.harness.offers and not real

    async def _shown(self, name: str, body: Body, at: Opening, window: timedelta) -> Judged:
        good_time.set(self.harness.patience / 6)
        limit = asyncio.timeout(self.harness.patience.total_seconds())
        try:
            async with limit, AsyncExitStack() as exits:
                bench = Bench(self.harness, at, f"{self.seed}/{name}", window, exits, long=self.long)
                await bench.begin()
                await body(bench)
        except NotApplicable as reason:
            return "not applicable", "", str(reason)
        except NotShown as reason:
            return "not covered", "", str(reason)
        except TimeoutError as late:
            return ("broken", "it ends", "stuck") if limit.expired() else ("error", "", _said(late))
        except BaseException as raised:
            return _judged(raised)
        return "held", "", ""


def _stuck(where: str) -> Judged:
    return "broken", "a call awaits what it waits for", f"{_STUCK}the event loop does not turn, in {where}"


def _judged(raised: BaseException) -> Judged:
    if isinstance(raised, Broken):
        notes: list[str] = getattr(raised, "__notes__", [])
        return "broken", raised.promised, "\n".join([raised.seen, *notes])
    parts: Sequence[BaseException] = getattr(raised, "exceptions", ())
    if parts:
        return _judged(parts[0])
    if isinstance(raised, (KeyboardInterrupt, SystemExit, GeneratorExit)):
        raise raised
    return "error", "", _said(raised)


def _said(raised: BaseException) -> str:
    return f"{type(raised).__name__}: {raised}"
