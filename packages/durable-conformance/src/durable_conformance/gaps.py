"""What a store is known not to keep, and why: declared in a file, shown in every report."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from durable_conformance.case import cases
from durable_conformance.clauses import clauses
from durable_conformance.engine import Result


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps of one store: reasons, by the name of a test, or of a clause for all of its tests."""

    reasons: Mapping[str, str]

    def of(self, result: Result) -> str | None:
        """Give why a result is known."""
        return self.reasons.get(result.case.name, self.reasons.get(result.case.clause.id))

    def applied(self, result: Result) -> Result:
        """Give a result as the gaps have it: what is known is a gap, and what is known and holds is a closed one."""
        reason = self.of(result)
        if reason is None or result.verdict == "not applicable":
            return result
        if result.verdict == "held":
            told = "the declared gap is closed: remove it from the gaps file, or name the tests that do not hold"
            return replace(result, verdict="closed", seen=f"{told} ({reason})")
        seen = f"{result.promised}; seen: {result.seen}" if result.promised else result.seen
        return replace(result, verdict="gap", promised=reason, seen=seen)


NO_GAPS = Gaps({})


def read(path: Path | None, store: str) -> Gaps:
    """Read a store's gaps. Raises: `ValueError` for an entry that names no test and no clause, or gives no reason."""
    if path is None:
        return NO_GAPS
    table = tomllib.loads(path.read_text()).get(store, {})
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {store!r} must be a table of reasons")
    known = {*clauses(), *(case.name for case in cases())}
    for name, reason in table.items():  # pyright: ignore[reportUnknownVariableType]
        if name not in known:
            raise ValueError(f"{path}: [{store}] names {name!r}, which is no test and no clause")
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"{path}: [{store}] {name!r} gives no reason")
    return Gaps(table)  # pyright: ignore[reportUnknownArgumentType]
