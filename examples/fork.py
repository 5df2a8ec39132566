"""A fork: a new workflow begins with what another one had before one of its steps, and goes its own way from there.

python examples/fork.py [URL]
"""

import asyncio
import sys
from uuid import uuid4

import durable_core
from durable_core import Durable, Run, fork, result, start
from durable_core.worker import Worker


async def research(topic: str) -> str:
    print(f"  researching {topic}: an hour's work")
    return f"notes on {topic}"


async def write(notes: str, tone: str) -> str:
    print(f"  writing in a {tone} tone")
    return f"a {tone} text from {notes}"


async def article(run: Run) -> str:
    notes = await run.step("researched", research, str, await run.input(str))
    tone = await run.awaiting("tone", str)
    return await run.step("written", write, str, notes, tone)


async def answer(durable: Durable, workflow: str, tone: str) -> None:
    """Let the workflow run up to its question, answer it, and print how it ends."""
    worker = Worker(durable)
    await worker.settle({"article": article})
    await durable.arrive(workflow, "tone", tone)
    await worker.settle({"article": article})
    print(await result(durable, workflow, str))


async def main(url: str = "sqlite:///examples.db") -> None:
    async with durable_core.open(url) as durable:
        first, second = f"article/{uuid4().hex[:8]}", f"article/{uuid4().hex[:8]}"
        await start(durable, first, "tides")
        await answer(durable, first, "dry")

        await fork(durable, first, second, before="tone")  # what is recorded before the answer comes along: the notes
        await answer(durable, second, "cheerful")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
