"""A graph of async functions: each is recorded before those that depend on it start, so a second attempt repeats none of them.

python examples/graph.py [URL]
"""

import asyncio
import sys
from datetime import timedelta
from uuid import uuid4

import durable_core
from durable_core import Durable
from durable_core.graph import Graph, Node, Source, run_durably

outages = ["the hotels' site is down"]


async def flight(city: str) -> int:
    print(f"  looking for a flight to {city}")
    return 240


async def hotel(city: str) -> int:
    print(f"  looking for a hotel in {city}")
    if outages:
        raise ConnectionError(outages.pop())
    return 310


async def total(flight: int, hotel: int) -> int:
    return flight + hotel


city = Source[str]("city")
flights, hotels = Node("flight", flight, city), Node("hotel", hotel, city)
trip = Graph(Node("total", total, flights, hotels), city)


async def attempt(durable: Durable, workflow: str) -> int:
    """Claim the workflow, and run what is not recorded yet."""
    holder = await durable.checkpointer.claim(workflow, timedelta(minutes=5), timedelta(minutes=1))
    assert holder is not None, "somebody else is at it"
    try:
        return await run_durably(trip, durable.checkpointer, holder, "Turin")
    finally:
        await durable.checkpointer.release(holder)


async def main(url: str = "sqlite:///examples.db") -> None:
    async with durable_core.open(url) as durable:
        workflow = f"trip/{uuid4().hex[:8]}"
        try:
            await attempt(durable, workflow)
        except ConnectionError as error:
            print(f"the first attempt failed: {error}")
        print(f"the second gives {await attempt(durable, workflow)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
