"""`python -m durable_postgres schema [NAME] [PARTITIONS]` prints the schema, for a role that may create it.

NAME is `public` where it is not given; PARTITIONS is the number of partitions of the three large tables.
"""

from __future__ import annotations

import sys

from durable_postgres.schema import printed


def main(arguments: list[str]) -> int:
    """Print the schema, or how to ask for it."""
    match arguments:
        case ["schema"]:
            print(printed())
        case ["schema", name]:
            print(printed(name))
        case ["schema", name, partitions] if partitions.isdigit():
            print(printed(name, partitions=int(partitions)))
        case _:
            print("usage: python -m durable_postgres schema [NAME] [PARTITIONS]", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
