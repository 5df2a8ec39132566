"""`python -m durable_sqlite schema` prints the schema, for those who apply it themselves."""

from __future__ import annotations

import sys

from durable_sqlite.schema import migrations


def main(arguments: list[str]) -> int:
    """Print what was asked for, and give the exit code."""
    if arguments != ["schema"]:
        print("usage: python -m durable_sqlite schema", file=sys.stderr)
        return 2
    for number, text in enumerate(migrations(), start=1):
        print(text)
        print(f"INSERT INTO workflow_schema (version) VALUES ({number});")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
