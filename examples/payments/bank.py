"""How the shop talks to the payment gateway: a line of JSON there and a line of JSON back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass


class Declined(Exception):
    """The gateway refuses the card. Asking again later may end differently, so a workflow has to record it."""


class Unavailable(Exception):
    """Nobody knows whether the gateway did it: ask again with the same key."""


@dataclass(frozen=True, slots=True)
class Bank:
    """The gateway at a port of this machine. Each request carries an idempotency key."""

    port: int

    async def charge(self, key: str, reference: str, card: str, cents: int) -> str:
        """Take money from a card, and give the receipt. Raises: `Declined`, `Unavailable`."""
        return await self._ask(do="charge", key=key, reference=reference, card=card, cents=cents)

    async def refund(self, key: str, receipt: str) -> str:
        """Give the money of a receipt back, and give the refund's own receipt. Raises: `Unavailable`."""
        return await self._ask(do="refund", key=key, receipt=receipt)

    async def top_up(self, card: str, cents: int) -> str:
        """Put money on a card."""
        return await self._ask(do="top up", card=card, cents=cents)

    async def _ask(self, **request: str | int) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
        finally:
            writer.close()
        match json.loads(line or b"null"):
            case {"receipt": str(receipt)}:
                return receipt
            case {"declined": str(reason)}:
                raise Declined(reason)
            case {"busy": str(reason)}:
                raise Unavailable(reason)
            case _:
                raise Unavailable("the gateway hung up without an answer")
