"""The payment gateway: a process of its own that honours idempotency keys and is otherwise not to be relied on.

    python -m examples.payments.gateway LEDGER SEED

prints its port, and answers requests that are one line of JSON each. It is busy, is slow, or does what it was asked and hangs up.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from enum import Enum
from pathlib import Path
from random import Random

from examples.payments.fleet import end_with_parent
from examples.payments.ledger import Ledger


class Mood(Enum):
    """What the gateway makes of a request; the value is how likely it is, in percent."""

    GOOD = 50
    SLOW = 14
    BUSY = 12
    SILENT = 24


class Gateway:
    """Answers one request per connection."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self._ledger, self._seed = ledger, seed
        self._asked: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a request and answer it, or not."""
        try:
            request = json.loads(await reader.readline() or b"null")
            answer = await self._answer(request, self._mood(request))
            if answer is not None:
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # the client was killed; whatever it asked for is done
        finally:
            writer.close()

    def _mood(self, request: object) -> Mood:
        match request:
            case {"key": str(key)}:
                self._asked[key] += 1
                chance = Random(f"{self._seed}/{key}/{self._asked[key]}")
                return Mood.GOOD if self._asked[key] > 3 else chance.choices(list(Mood), [mood.value for mood in Mood])[0]
            case _:
                return Mood.GOOD

    async def _answer(self, request: object, mood: Mood) -> dict[str, str] | None:
        if mood is Mood.BUSY:
            return {"busy": "503, come again"}
        if mood is Mood.SLOW:
            await asyncio.sleep(0.5)
        done = self._done(request)
        return None if mood is Mood.SILENT else done

    def _done(self, request: object) -> dict[str, str]:
        match request:
            case {"do": "charge", "key": str(key), "reference": str(reference), "card": str(card), "cents": int(cents)}:
                receipt = self._ledger.charge(key, reference, card, cents)
                return {"declined": "insufficient funds"} if receipt is None else {"receipt": receipt}
            case {"do": "refund", "key": str(key), "receipt": str(receipt)}:
                return {"receipt": self._ledger.refund(key, receipt)}
            case {"do": "top up", "card": str(card), "cents": int(cents)}:
                return {"receipt": self._ledger.top_up(card, cents)}
            case _:
                return {"busy": "400, not a request"}


async def main(ledger: Path, seed: int) -> None:
    """Serve until the process is ended."""
    server = await asyncio.start_server(Gateway(Ledger(ledger), seed).serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
