"""What came of a run over a store, and how it is told: a table for the terminal, JUnit, JSON and Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree

from durable_conformance.clauses import Clause, clauses
from durable_conformance.engine import Result, Verdict
from durable_core.contract import Description

_WORST_FIRST: Final[Sequence[Verdict]] = ("broken", "error", "closed", "not covered", "gap", "held", "not applicable")
_BAD: Final[frozenset[Verdict]] = frozenset({"broken", "error", "closed"})


@dataclass(frozen=True, slots=True)
class Power:
    """What the kit itself is worth: how many of its mutants its cases see, and which they do not."""

    killed: int
    total: int
    alive: Sequence[str] = ()

    def __str__(self) -> str:
        told = f"the kit sees {self.killed} of its {self.total} mutants"
        return f"{told}; not seen: {', '.join(self.alive)}" if self.alive else told


@dataclass(frozen=True, slots=True)
class Report:
    """What one store was seen to keep. `results` has one entry for each case of the kit, whether it ran or not."""

    store: str
    said: Description
    results: Sequence[Result]
    seed: str
    long: bool
    seconds: float

    def verdict(self, clause: Clause) -> Verdict:
        """Give the worst that any case of the clause came to; a clause is held when each of its cases that applies is."""
        verdicts = {result.verdict for result in self.results if result.case.clause == clause}
        for verdict in _WORST_FIRST:
            if verdict in verdicts:
                return verdict
        return "not covered"

    @property
    def by_clause(self) -> Mapping[str, Verdict]:
        """Every clause that a store can keep, with its verdict."""
        return {name: self.verdict(clause) for name, clause in clauses().items() if not clause.by_engine}

    @property
    def held(self) -> int:
        """How many clauses are held, of all there are. Only cases that ran count: what is left out can never raise it."""
        return sum(verdict == "held" for verdict in self.by_clause.values())

    @property
    def exit_code(self) -> int:
        """0: each clause is held, a gap with a reason, or not applicable. 1: one is broken, or a gap is closed. 3: one is not
        covered.
        """
        verdicts = {result.verdict for result in self.results}
        return 1 if verdicts & _BAD else 3 if "not covered" in verdicts else 0

    def __str__(self) -> str:
        counts = {verdict: sum(one == verdict for one in self.by_clause.values()) for verdict in _WORST_FIRST}
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count and verdict != "held")
        ran = sum(result.verdict not in ("not covered", "not applicable") for result in self.results)
        grade = f"{self.store}: {self.held} of {len(self.by_clause)} clauses held{', ' + told if told else ''}"
        return f"{grade}; {ran} of {len(self.results)} tests ran, in {self.seconds:.0f} s"


def terminal(report: Report) -> str:
    """Give what is not simply held, then the clauses by protocol, then the grade."""
    lines: list[str] = []
    for result in report.results:
        if result.verdict in ("broken", "error", "closed", "gap"):
            head = f"{result.verdict.upper()} {result.case.name}"
            lines += [head, *(f"    {line}" for line in str(result).splitlines()), ""]
    for reason, names in by_reason(report.results, "not covered").items():
        lines += [f"NOT COVERED, {counted(names)}: {reason}", *(f"    {name}" for name in names), ""]
    for reason, names in by_reason(report.results, "not applicable").items():
        lines.append(f"not applicable, {counted(names)}: {reason}")
    return "\n".join([*lines, "", str(report)])


def by_reason(results: Iterable[Result], verdict: Verdict) -> Mapping[str, Sequence[str]]:
    """Give the names of the tests that came to a verdict, by the reason, the one of most tests first."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result.verdict == verdict:
            reasons.setdefault(result.seen, []).append(result.case.name)
    return dict(sorted(reasons.items(), key=lambda one: -len(one[1])))


def counted(names: Sequence[str]) -> str:
    """Say how many tests there are."""
    return "1 test" if len(names) == 1 else f"{len(names)} tests"


def to_junit(reports: Sequence[Report]) -> str:
    """Give the reports as JUnit XML; each test has its clause's id as a property."""
    root = ElementTree.Element("testsuites", name="durable-conformance")
    for report in reports:
        counts = {verdict: sum(result.verdict == verdict for result in report.results) for verdict in _WORST_FIRST}
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=report.store,
            tests=str(len(report.results)),
            failures=str(counts["broken"] + counts["closed"]),
            errors=str(counts["error"]),
            skipped=str(counts["not covered"] + counts["not applicable"] + counts["gap"]),
            time=f"{report.seconds:.3f}",
        )
        for result in report.results:
            _junit_case(suite, report, result)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _junit_case(suite: ElementTree.Element, report: Report, result: Result) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"durable_conformance.{report.store}", name=result.case.name, time=f"{result.seconds:.3f}"
    )
    properties = ElementTree.SubElement(case, "properties")
    ElementTree.SubElement(properties, "property", name="clause", value=result.case.clause.id)
    ElementTree.SubElement(properties, "property", name="verdict", value=result.verdict)
    if result.verdict in ("broken", "closed"):
        ElementTree.SubElement(case, "failure", message=result.seen[:200]).text = str(result)
    elif result.verdict == "error":
        ElementTree.SubElement(case, "error", message=result.seen[:200]).text = str(result)
    elif result.verdict != "held":
        ElementTree.SubElement(case, "skipped", message=f"{result.verdict}: {result.promised or result.seen}"[:300])


_SIGNS: Final[Mapping[Verdict, str]] = {
    "held": "held",
    "broken": "**broken**",
    "error": "**error**",
    "closed": "**gap closed**",
    "gap": "gap",
    "not covered": "not covered",
    "not applicable": "-",
}


def to_markdown(reports: Sequence[Report], power: Power | None = None) -> str:
    """Give a table with a column for each store and a row for each clause, then the reasons; nothing in it changes from run to
    run.
    """
    lines = ["| clause | " + " | ".join(report.store for report in reports) + " |", "| --- |" + " --- |" * len(reports)]
    for name, clause in clauses().items():
        if not clause.by_engine:
            lines.append(f"| {name} | " + " | ".join(_SIGNS[report.verdict(clause)] for report in reports) + " |")
    lines.append("| **held** | " + " | ".join(f"**{report.held} of {len(report.by_clause)}**" for report in reports) + " |")
    for report in reports:
        lines += _notes(report)
    if power is not None:
        lines += ["", "## The kit's own power", "", f"{power}."]
    return "\n".join(lines) + "\n"


def _notes(report: Report) -> list[str]:
    lines = ["", f"## {report.store}", ""]
    counts = Counter(result.verdict for result in report.results)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _WORST_FIRST if counts[verdict])
    lines += [f"{report.said.product}. Of {len(report.results)} tests: {told}.", ""]
    for result in report.results:
        if result.verdict in ("broken", "error", "closed"):
            lines.append(f"- **{result.verdict}** `{result.case.name}`: {result.promised}; seen: {result.seen}")
        elif result.verdict == "gap":
            lines.append(f"- gap `{result.case.name}`: {result.promised}")
    for reason, names in by_reason(report.results, "not covered").items():
        lines += [f"- not covered, {counted(names)}: {reason}", *(f"  - `{name}`" for name in names)]
    for reason, names in by_reason(report.results, "not applicable").items():
        lines.append(f"- not applicable, {counted(names)}: {reason}")
    return lines
