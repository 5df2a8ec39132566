"""The payment gateway's own books, in a file of its own that no workflow writes to."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SCHEMA = """
CREATE TABLE card (name TEXT PRIMARY KEY, cents INTEGER);
CREATE TABLE charge (receipt INTEGER PRIMARY KEY, key TEXT, reference TEXT, card TEXT, cents INTEGER);
CREATE TABLE refund (receipt INTEGER PRIMARY KEY, key TEXT, charge INTEGER);
CREATE TABLE repeat (key TEXT);
"""


@dataclass(frozen=True, slots=True)
class Charge:
    """Money that was taken for a reference, and how often it was given back."""

    reference: str
    cents: int
    refunds: int


@dataclass(frozen=True, slots=True)
class Statement:
    """Every charge, what is on each card, and how many requests repeated a key that had been honoured."""

    charges: Sequence[Charge]
    cards: Mapping[str, int]
    repeats: int


class Ledger:
    """Charges, refunds, and the requests that repeated a key and changed nothing."""

    def __init__(self, path: Path) -> None:
        new = not path.exists()
        self._connection = sqlite3.connect(path)
        if new:
            self._connection.executescript(_SCHEMA)

    def top_up(self, card: str, cents: int) -> str:
        """Put money on a card, new or known."""
        added = "INSERT INTO card VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET cents = cents + ?2"
        with self._connection as connection:
            connection.execute(added, (card, cents))
        return card

    def charge(self, key: str, reference: str, card: str, cents: int) -> str | None:
        """Take money once for a key, and give the receipt; `None` when there is not enough, which no key remembers."""
        with self._connection as connection:
            if receipt := self._repeated("charge", key):
                return receipt
            paid = connection.execute("UPDATE card SET cents = cents - ?2 WHERE name = ?1 AND cents >= ?2", (card, cents))
            if paid.rowcount == 0:
                return None
            row = (key, reference, card, cents)
            return str(connection.execute("INSERT INTO charge (key, reference, card, cents) VALUES (?, ?, ?, ?)", row).lastrowid)

    def refund(self, key: str, receipt: str) -> str:
        """Give the money of a receipt back once for a key."""
        with self._connection as connection:
            if repeated := self._repeated("refund", key):
                return repeated
            money = "UPDATE card SET cents = card.cents + charge.cents FROM charge WHERE name = charge.card AND receipt = ?"
            connection.execute(money, (receipt,))
            return str(connection.execute("INSERT INTO refund (key, charge) VALUES (?, ?)", (key, receipt)).lastrowid)

    def statement(self) -> Statement:
        """Give all that is written here."""
        counted = "(SELECT count(*) FROM refund WHERE refund.charge = charge.receipt)"
        charges = [Charge(*row) for row in self._connection.execute(f"SELECT reference, cents, {counted} FROM charge")]
        cards = dict(self._connection.execute("SELECT name, cents FROM card"))
        (repeats,) = self._connection.execute("SELECT count(*) FROM repeat").fetchone()
        return Statement(charges, cards, repeats)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _repeated(self, table: str, key: str) -> str | None:
        found = self._connection.execute(f"SELECT receipt FROM {table} WHERE key = ?", (key,)).fetchone()
        if found is None:
            return None
        self._connection.execute("INSERT INTO repeat VALUES (?)", (key,))
        return str(found[0])
