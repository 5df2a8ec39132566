"""Prints which servers tests would use, and from where; ends with 1 when one that is named is missing."""

from __future__ import annotations

import argparse
import os
import sys

from durable_conformance.servers._docker import engine_answers, version_of_testcontainers
from durable_conformance.servers._find import KINDS, Binary, Kind, NoServer, find
from durable_conformance.servers._share import SHAREABLE, given
from durable_conformance.servers._units import DidNotStart


def main(arguments: list[str] | None = None) -> int:
    """Prints a line for each kind of server, and in full what would bring the named ones that are missing."""
    parser = argparse.ArgumentParser(prog="python -m durable_conformance.servers", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"must be there: {', '.join(KINDS)}")
    kinds: list[str] = parser.parse_args(arguments).kinds
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"there is no kind {', '.join(sorted(unknown))}")
    missing = [failure for kind in KINDS if (failure := _show(kind)) is not None and kind in kinds]
    failures = [*missing, *_show_given()]
    _show_docker()
    for each in failures:
        print(f"\n{each}", file=sys.stderr)
    return 1 if failures else 0


def _show(kind: Kind) -> NoServer | None:
    try:
        program = find(kind)
    except NoServer as missing:
        print(f"{kind:15} -          missing")
        return missing
    where = f"{program.origin}: {program.path}" if isinstance(program, Binary) else program.origin
    print(f"{kind:15} {program.version:10} {where}")
    return None


def _show_given() -> list[DidNotStart]:
    """The servers that the environment names; the failures of those that do not answer."""
    failures: list[DidNotStart] = []
    for kind in SHAREABLE:
        try:
            address = given(kind)
        except DidNotStart as failure:
            failures.append(failure)
        else:
            if address is not None:
                print(f"{kind:15} {address.version:10} {address.origin}, shared by tests that need none of their own")
    return failures


def _show_docker() -> None:
    engine = "an engine answers" if engine_answers(os.environ) else "no engine answers"
    print(f"{'docker':15} {version_of_testcontainers() or '-':10} {engine}; the version is that of testcontainers")


if __name__ == "__main__":
    sys.exit(main())
