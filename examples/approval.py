"""An approval with a deadline: the first answer counts, silence is an answer, and who comes too late is told.

python examples/approval.py [URL]
"""

import asyncio
import sys
from datetime import timedelta
from uuid import uuid4

import durable_core
from durable_core import Durable, Finished, Run, result, start
from durable_core.worker import Worker


async def expense(run: Run) -> str:
    what = await run.input(str)
    approved = await run.awaiting("approved", bool, timeout=timedelta(seconds=1), default=False)
    return f"{what} is paid for" if approved else f"{what} is not paid for"


async def outcome(durable: Durable, workflow: str) -> str:
    """Wait for the end of a workflow, in whatever process it runs."""
    match await result(durable, workflow, str, wait=timedelta(seconds=30)):
        case Finished(value):
            return value
        case other:
            raise RuntimeError(f"{workflow} did not finish: {other}")


async def main(url: str = "sqlite:///examples.db") -> None:
    async with durable_core.open(url) as durable, asyncio.TaskGroup() as group:
        worker = Worker(durable)
        group.create_task(worker.run({"expense": expense}))

        train, dinner = f"expense/{uuid4().hex[:8]}", f"expense/{uuid4().hex[:8]}"
        await start(durable, train, "the train")
        await start(durable, dinner, "the dinner")

        await durable.arrive(train, "approved", True)  # from any process; before the workflow asks is early enough
        print(await outcome(durable, train))
        print(await outcome(durable, dinner))

        late = await durable.arrive(dinner, "approved", True)
        print(f"an answer after the deadline: counted {late.first}, what counts is {late.value}")
        worker.drain()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
