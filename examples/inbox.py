"""An inbox: messages are records, so none is lost while nobody reads, and a sender may repeat itself.

python examples/inbox.py [URL]
"""

import asyncio
import sys
from uuid import uuid4

import durable_core
from durable_core import Finished, Run, nothing, result
from durable_core.worker import Worker


async def write_down(text: str) -> None:
    print(f"  {text}")


async def room(run: Run) -> int:
    """Write down what is said until somebody says goodbye."""
    last: str | None = None
    heard = 0
    while True:
        for entry in await run.receive(f"read after {last}", str, after=last):  # waits for one at least
            await run.step(f"written {entry.key}", write_down, nothing, entry.value)
            last, heard = entry.key, heard + 1
            if entry.value == "goodbye":
                return heard


async def main(url: str = "sqlite:///examples.db") -> None:
    async with durable_core.open(url) as durable:
        workflow = f"room/{uuid4().hex[:8]}"
        worker = Worker(durable)

        await durable.deliver(workflow, "hello")  # before anybody runs: it will be there
        await durable.deliver(workflow, "is anybody here?", once="message 2")
        await durable.deliver(workflow, "is anybody here?", once="message 2")  # sent again, and the same entry
        await worker.settle({"room": room})

        await durable.deliver(workflow, "goodbye")
        await worker.settle({"room": room})

        match await result(durable, workflow, int):
            case Finished(heard):
                print(f"{heard} messages were heard")
            case other:
                raise RuntimeError(f"the room did not close: {other}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
