"""Runs cases against a harness: the one engine behind pytest, the command line and `check`."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeAlias

from durable_core._clock import ManualClock

from durable_conformance.bench import Bench
from durable_conformance.case import Case
from durable_conformance.expect import Broken, NotShown
from durable_conformance.harness import Harness, Opening

Verdict: TypeAlias = Literal["held", "broken", "error", "gap", "closed", "not covered", "not applicable"]

_runs = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case: held, broken, error (the store raised what nobody promised), gap (declared, and not held), closed (a declared
    gap that holds: remove it), not covered (a hook is missing), not applicable (the store says that it has no such thing)."""

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
        lines += [f"seen: {self.seen}", f"read: durable_core.contract, {clause.where}; docs/reference/contract.md#{clause.anchor}"]
        return "\n".join([*lines, f"seed: {self.seed}"])


class Session:
    """One run over a harness: started once, stopped at the end."""

    def __init__(self, harness: Harness[object], *, seed: str = "0", long: bool = False) -> None:
        self.harness, self.seed, self.long = harness, seed, long
        self._address: str | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._address is not None:
            self._address = None
            self.harness.stop()

    def run(self, case: Case) -> Result:
        """Run one case on a datastore of its own."""
        missing = case.needs - self.harness.offers
        lacking = missing & self.harness.lacks.keys()
        if lacking:
            return Result(case, "not applicable", "; ".join(self.harness.lacks[hook] for hook in sorted(lacking)))
        if missing:
            return Result(case, "not covered", f"the harness does not offer {', '.join(sorted(missing))}")
        if self._address is None:
            self._address = self.harness.start()
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="durable-") as folder, asyncio.Runner() as runner:
            verdict, promised, seen = runner.run(self._shown(case, self._opening(case, Path(folder), self._address)))
        return Result(case, verdict, seen, promised, time.perf_counter() - began, self.seed)

    def _opening(self, case: Case, folder: Path, address: str) -> Opening:
        manual = "clock" in self.harness.offers and not case.real
        lease = timedelta(seconds=30) if manual else self.harness.window
        name = f"c{next(_runs)}x{abs(hash((time.time_ns(), case.name))) % 10**9}"
        return Opening(folder, name, address, f"q{name}", lease, clock=ManualClock() if manual else None)

    async def _shown(self, case: Case, at: Opening) -> tuple[Verdict, str, str]:
        try:
            async with asyncio.timeout(self.harness.patience.total_seconds()) as limit, AsyncExitStack() as exits:
                bench = Bench(self.harness, at, f"{self.seed}/{case.name}", exits, long=self.long)
                await bench.begin()
                if case.when is not None and not case.when(bench.description):
                    return "not applicable", "", "describe() says that the store has no such thing"
                await case.body(bench)
        except NotShown as reason:
            return "not covered", "", str(reason)
        except TimeoutError as late:
            return ("broken", "it ends", "stuck") if limit.expired() else ("error", "", _said(late))
        except BaseException as raised:
            return _judged(raised)
        return "held", "", ""


def _judged(raised: BaseException) -> tuple[Verdict, str, str]:
    if isinstance(raised, Broken):
        return "broken", raised.promised, raised.seen
    if isinstance(raised, BaseExceptionGroup):
        for part in raised.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            return _judged(part)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(raised, (KeyboardInterrupt, SystemExit, GeneratorExit)):
        raise raised
    return "error", "", _said(raised)


def _said(raised: BaseException) -> str:
    return f"{type(raised).__name__}: {raised}"
