"""Run the shop: `python -m examples.payments`."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from examples.payments.batch import WORKERS, Batch, ran
from examples.payments.report import reported, shown
from examples.payments.stock import SCHEMES


def main(arguments: list[str]) -> int:
    """Run a batch, and give the exit code: zero when the books balance."""
    parser = argparse.ArgumentParser(prog="python -m examples.payments", description="Orders, and workers that are killed.")
    parser.add_argument("--store", metavar="URL", help="where the workflows live; otherwise a new SQLite file")
    parser.add_argument("--orders", type=int, default=60, help="how many orders (60)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="decides the orders and the gateway's moods")
    options = parser.parse_args(arguments)
    if options.store and options.store.partition(":")[0] not in SCHEMES:
        parser.error(f"there is a stock for {', '.join(SCHEMES)} so far, and none for {options.store}")
    with tempfile.TemporaryDirectory(prefix="payments-") as room:
        store = options.store or f"sqlite:///{Path(room, 'shop.db')}"
        batch = Batch(store, Path(room, "gateway.db"), options.orders, options.seed)
        print(f"{batch.orders} orders, {WORKERS} workers, seed {batch.seed}, {store}", flush=True)
        try:
            return 0 if reported(asyncio.run(ran(batch, shown(batch)))) else 1
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
