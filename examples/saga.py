"""A saga: what was done is undone when a later part fails. The failure is a record, so a crash in between changes no mind.

python examples/saga.py [URL]
"""

import asyncio
import sys
from uuid import uuid4

import durable_core
from durable_core import Finished, Run, StepFailed, nothing, result, start
from durable_core.worker import Worker

seats = {"flight": 1, "hotel": 1, "car": 0}


class SoldOut(Exception):
    pass


async def book(what: str, key: str) -> str:
    print(f"  booking a {what}")
    if not seats[what]:
        raise SoldOut(f"there is no {what}")
    return f"a {what}"


async def cancel(ticket: str) -> None:
    print(f"  cancelling {ticket}")


async def trip(run: Run) -> str:
    tickets: list[str] = []
    try:
        for what in ("flight", "hotel", "car"):
            key = run.idempotency_key(what)  # for the other side: the same key is the same booking
            tickets.append(await run.step(what, book, str, what, key, failures=(SoldOut,)))
    except StepFailed as failed:
        # A SoldOut that was only caught here would be forgotten by a crash: the next pass might find a car, and keep
        # a trip whose flight is already cancelled.
        for ticket in reversed(tickets):
            await run.step(f"cancel {ticket}", cancel, nothing, ticket)
        return f"no trip: {failed.message}"
    return "booked"


async def main(url: str = "sqlite:///examples.db") -> None:
    async with durable_core.open(url) as durable:
        workflow = f"trip/{uuid4().hex[:8]}"
        await start(durable, workflow)
        await Worker(durable).settle({"trip": trip})
        match await result(durable, workflow, str):
            case Finished(outcome):
                print(outcome)
            case other:
                raise RuntimeError(f"the trip did not end: {other}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
