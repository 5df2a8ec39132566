"""The pytest door: a class to inherit from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from durable_conformance import gaps as known
from durable_conformance.case import Case, cases
from durable_conformance.engine import Result, Session
from durable_conformance.harness import AnyHarness
from durable_conformance.report import by_reason, counted
from durable_conformance.run import seed_of, wants_long
from durable_conformance.written import verdicts


class Conformance:
    """A test for each case of the kit; inherit from it, in a class whose name begins with `Test`, and name your harness.

        class TestMyStore(Conformance):
            harness = MyHarness

    The tests are plain functions with an event loop of their own, so that no plugin and no mode of one matters to them.
    """

    harness: ClassVar[type[AnyHarness]]
    gaps: ClassVar[Path | None] = None
    """What the store is known not to keep, and why: a TOML file."""

    report: ClassVar[Path | None] = None
    """A JSON report that is kept with the store: a test that comes to another verdict than it tells fails."""

    _session: ClassVar[Session | None] = None

    @classmethod
    def setup_class(cls) -> None:
        """Begin a run over the store."""
        long = wants_long()
        cls._session = Session(cls.harness(), seed=seed_of(long), long=long)

    @classmethod
    def teardown_class(cls) -> None:
        """End it."""
        if cls._session is not None:
            cls._session.__exit__()
            cls._session = None

    def test_every_clause_is_covered(self) -> None:
        """The harness offers what each case needs, or says what the store lacks, or the gaps file says why not."""
        session, declared = self._running(), known.read(self.gaps, self.harness.title())
        outside = [result for case in cases() if (result := session.outside(case)) is not None and declared.of(result) is None]
        left = by_reason(outside, "not covered")
        if left:
            told = [f"{reason}: {counted(names)}\n    " + "\n    ".join(names) for reason, names in left.items()]
            pytest.fail("\n".join(["not covered, and no gap says why:", *told]), pytrace=False)

    def _running(self) -> Session:
        session = type(self)._session
        assert session is not None
        return session

    def _show(self, case: Case, record_property: Callable[[str, object], None]) -> None:
        result = known.read(self.gaps, self.harness.title()).applied(self._running().run(case))
        record_property("clause", case.clause.id)
        record_property("store", self.harness.title())
        record_property("verdict", result.verdict)
        _judge(result, self._differs(result))

    def _differs(self, result: Result) -> str:
        """Say how a result differs from the report that is kept, if it does."""
        if self.report is None or result.verdict == "not covered":  # which the machine may be to blame for
            return ""
        told = verdicts(self.report).get(self.harness.title(), {}).get(result.case.name, "nothing")
        return "" if told == result.verdict else f"{self.report.name} says {told}, and it is {result.verdict}: write it anew"


def _judge(result: Result, differs: str) -> None:
    """Say in pytest's words what came of a case."""
    if result.verdict in ("broken", "error", "closed"):
        pytest.fail(str(result), pytrace=False)
    if differs:
        pytest.fail(differs, pytrace=False)
    if result.verdict == "gap":
        pytest.xfail(f"gap: {result.promised}")
    if result.verdict != "held":
        pytest.skip(f"{result.verdict}: {result.seen}")


def _test(case: Case) -> Callable[[Conformance, Callable[[str, object], None]], None]:
    def test(self: Conformance, record_property: Callable[[str, object], None]) -> None:
        self._show(case, record_property)  # pyright: ignore[reportPrivateUsage]

    test.__name__, test.__qualname__, test.__doc__ = case.name, f"Conformance.{case.name}", f"{case.clause.id}: {case.promise}"
    return test


for _case in cases():
    setattr(Conformance, _case.name, _test(_case))
