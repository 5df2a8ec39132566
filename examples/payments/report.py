"""What the example prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from examples.payments.batch import Batch, Done
from examples.payments.books import faults
from examples.payments.fleet import Fleet

AFTERMATH = {
    "shipped": "paid, approved, settled, shipped",
    "declined": "card refused; stock released",
    "rejected": "approver said no; refunded, stock released",
    "expired": "nobody answered in time; refunded, stock released",
}


def shown(batch: Batch) -> Callable[[dict[str, str], Fleet], None]:
    """Give what prints a line of progress."""

    def show(outcomes: dict[str, str], workers: Fleet) -> None:
        done, width = len(outcomes), 30
        bar = "#" * (width * done // batch.orders)
        print(f"  [{bar:.<{width}}] {done:3} of {batch.orders} orders, {workers.kills:2} workers killed", flush=True)

    return show


def reported(done: Done) -> bool:
    """Print the table and the checks, and say whether the books balance."""
    outcomes = Counter(done.books.outcomes.values())
    print(f"\n{'outcome':<10} {'orders':>6}")
    for outcome, count in outcomes.most_common():
        print(f"{outcome:<10.10} {count:>6}   {AFTERMATH.get(outcome, outcome)}")
    orders = len(done.books.plans)
    print(f"\n{done.kills} workers were killed; {done.passes} passes ended {orders} orders in {done.seconds:.0f} seconds.")
    print(f"The gateway was asked {done.books.ledger.repeats} times for what it had done already, and did it once.\n")
    found = faults(done.books)
    for promise, wrong in found.items():
        print(f"  {'NOT TRUE' if wrong else 'ok':<8} {promise}")
        for what in wrong[:10]:
            print(f"{'':11}{what}")
    balanced = not any(found.values())
    print("\nThe books balance." if balanced else "\nTHE BOOKS DO NOT BALANCE.")
    return balanced
