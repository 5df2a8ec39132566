"""Writes docs/reference/contract.md, each clause with what shows it and what breaks it: `python -m conformance.contract`"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from durable_conformance.case import cases
from durable_conformance.clauses import Clause, clauses
from durable_conformance.mutants.registry import mutants

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "contract.md"
REASONS = ROOT / "docs" / "explanation" / "why-the-clauses.md"
CORE = ROOT / "packages" / "durable-core" / "tests"

HEAD = """\
<!-- Written by `python -m conformance.contract`, from the docstrings that state the clauses, their tests and their mutants. -->
# The contract, clause by clause

{count} obligations, each with an id that is never reused: `CKP` is the checkpointer's, `SCH` the scheduler's, `DUR` the
durable's, `CAT` the catalog's, `CDC` the codec's; `ANY` holds for all of them, and `RUN` is the engine's. The words are those of
[`durable_core.contract`](../../packages/durable-core/src/durable_core/contract.py) and, for the engine, of the functions that
keep them.

Under each clause stand its tests, and its mutants: stores or engines that break this clause, each of which one of these tests is
seen to fail. The tests of a store's clauses are in `durable_conformance` and run
[against any store](../how-to/hold-a-store-to-the-contract.md); which store keeps what is in
[the report](../../conformance/REPORT.md).
"""


def page() -> str:
    """Give the page."""
    lines = [HEAD.format(count=len(clauses()))]
    shown, broken, explained = shows(), breaks(), reasons()
    where = ""
    for one in clauses().values():
        if one.where != where:
            where = one.where
            lines += [f"## `{where}`", ""]
        lines += [f"### {one.id}", "", one.text, ""]
        if one.id in explained:
            lines += [f"[Why](../explanation/{REASONS.name}#why-{one.id.lower()})", ""]
        lines += [*part("Tests", shown[one.id]), *part("Mutants", broken[one.id])]
    return "\n".join(lines).rstrip() + "\n"


def part(title: str, entries: Sequence[str]) -> Iterator[str]:
    """Give a list under a title."""
    if entries:
        yield from (f"{title}:", "", *(f"- {entry}" for entry in entries), "")


def reasons() -> frozenset[str]:
    """Give the clauses that somebody explains."""
    heading = "### Why "
    return frozenset(line.removeprefix(heading) for line in REASONS.read_text().splitlines() if line.startswith(heading))


def shows() -> Mapping[str, Sequence[str]]:
    """Give the tests of each clause: the kit's cases, and core's own where the engine owes it."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for case in cases():
        found[case.clause.id].append(f"`{case.body.__name__}`: {' '.join(case.promise.split())}")
    for path in sorted(CORE.glob("test_*.py")):
        for name, clause, sentence in named(path):
            if clause.by_engine:
                found[clause.id].append(f"[`{name.removeprefix('test_')}`](../../{path.relative_to(ROOT)}): {sentence}")
    return found


def named(path: Path) -> Iterator[tuple[str, Clause, str]]:
    """Give the tests of a file whose docstring begins with a clause's id, in their order."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            names, _, sentence = (ast.get_docstring(node) or "").partition(":")
            for name in names.split(", "):
                if name in clauses():
                    yield node.name, clauses()[name], " ".join(sentence.split())


def breaks() -> Mapping[str, Sequence[str]]:
    """Give the mutants of each clause."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for mutant in mutants():
        found[mutant.clause.id].append(f"{mutant.id}: {mutant.text}")
    for table in tomllib.loads((CORE / "engine_mutants.toml").read_text())["mutant"]:
        found[clauses()[table["clause"]].id].append(table["name"])
    return found


def main() -> None:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
