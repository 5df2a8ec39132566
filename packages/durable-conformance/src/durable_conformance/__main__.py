"""`python -m durable_conformance MODULE:HARNESS …`: hold stores to the contract, without pytest."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from durable_conformance.child import found
from durable_conformance.engine import Result
from durable_conformance.report import Power, Report, terminal, to_junit, to_markdown
from durable_conformance.run import check, chosen, power
from durable_conformance.written import to_json

_EPILOG = """exit codes: 0 each clause is held, a gap with a reason, or not applicable; 1 one is broken, or a declared gap
is closed; 2 the stores could not be run; 3 none is broken, and one is not covered and no gap says why"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, write the reports, and give the exit code."""
    asked = _parser().parse_args(arguments)
    sys.path.insert(0, os.getcwd())
    if asked.list:
        for case in chosen(asked.only):
            print(f"{case.name}: {case.promise}")
        return 0
    if not asked.harness and not asked.power:
        _parser().error("name a harness, as MODULE:CLASS or path/of/a/file.py:CLASS")
    reports: list[Report] = []
    for name in asked.harness:
        try:
            reports.append(
                check(found(name), gaps=asked.gaps, only=asked.only, long=asked.long or None, seed=asked.seed, told=_dot)
            )
        except Exception as failure:
            print(f"\n{name} could not be run: {type(failure).__name__}: {failure}", file=sys.stderr)
            return 2
        print("\n" + terminal(reports[-1]))
    score = power() if asked.power else None
    if score is not None:
        print(score)
    _write(asked, reports, score)
    codes = {report.exit_code for report in reports}
    codes |= {1} if score is not None and score.alive else codes
    return 1 if 1 in codes else 3 if 3 in codes else 0


def _dot(result: Result) -> None:
    signs = {"held": ".", "broken": "F", "error": "E", "gap": "g", "closed": "C", "not covered": "?", "not applicable": "-"}
    print(signs[result.verdict], end="", flush=True)


def _write(asked: argparse.Namespace, reports: Sequence[Report], score: Power | None) -> None:
    for path, text in (
        (asked.json, to_json(reports, score)),
        (asked.junit, to_junit(reports)),
        (asked.markdown, to_markdown(reports, score)),
    ):
        if path is not None:
            path.write_text(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m durable_conformance", description=__doc__, epilog=_EPILOG)
    parser.add_argument("harness", nargs="*", help="MODULE:CLASS or path/of/a/file.py:CLASS")
    parser.add_argument("--gaps", type=Path, help="a TOML file of what the stores are known not to keep, and why")
    parser.add_argument("--only", default="", help="only the tests whose names, or clauses' ids, contain this")
    parser.add_argument("--seed", help="what chance begins with; a failure prints it")
    parser.add_argument("--long", action="store_true", help="take the time of a night")
    parser.add_argument("--power", action="store_true", help="hunt the kit's own mutants as well")
    parser.add_argument("--list", action="store_true", help="list the tests and what each asks for")
    parser.add_argument("--json", type=Path, help="write the report as JSON")
    parser.add_argument("--junit", type=Path, help="write the report as JUnit XML")
    parser.add_argument("--markdown", type=Path, help="write the report as a Markdown table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
