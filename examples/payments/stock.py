"""The warehouse. It lives in the workflows' own database, so that goods move and the move is recorded in one commit.

An effect is what a store can commit beside a record, and each kind of store has its own: to add a store, add a class.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar

from durable_core import dict_of, list_of
from examples.payments.orders import Order

if TYPE_CHECKING:  # so that each store is there only where it is used
    from psycopg import AsyncCursor
    from psycopg.rows import TupleRow

    from durable_postgres import SqlEffect
    from durable_redis import LuaEffect

E_co = TypeVar("E_co", covariant=True)
SCHEMES: Final = ("sqlite", "postgresql", "redis", "rediss", "redis+cluster", "redis+sentinel")
"""The stores for which there is a stock."""

Place: TypeAlias = Literal["free", "reserved", "shipped"]


class Stock(Protocol[E_co]):
    """Effects on the warehouse. None is written to bear repetition: a move that ran twice shows in the count."""

    def opened(self, batch: str, levels: Mapping[str, int], /) -> E_co:
        """Put goods on the shelves."""
        ...

    def moved(self, order: Order, source: Place, target: Place, /) -> E_co:
        """Move what was ordered from one place to another."""
        ...

    def counted(self, batch: str, /) -> E_co:
        """Count the shelves and list the moves."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """How much of each article is where, and every move of each order, in order."""

    shelves: Mapping[str, Mapping[str, int]]
    moves: Mapping[str, list[str]]


def as_count(value: object) -> Count:
    """Read a count back from the store."""
    parts = dict_of(lambda part: part)(value)
    return Count(dict_of(dict_of(int))(parts["shelves"]), dict_of(list_of(str))(parts["moves"]))


class SqliteStock:
    """Two tables beside the workflows'."""

    def opened(self, batch: str, levels: Mapping[str, int], /) -> Callable[[sqlite3.Cursor], object]:
        rows = [(batch, sku, place, level if place == "free" else 0) for sku, level in levels.items() for place in _PLACES]

        def effect(cursor: sqlite3.Cursor) -> None:
            cursor.execute("CREATE TABLE IF NOT EXISTS shelf (batch TEXT, sku TEXT, place TEXT, quantity INTEGER)")
            cursor.execute("CREATE TABLE IF NOT EXISTS move (batch TEXT, reference TEXT, what TEXT)")
            cursor.executemany("INSERT INTO shelf VALUES (?, ?, ?, ?)", rows)

        return effect

    def moved(self, order: Order, source: Place, target: Place, /) -> Callable[[sqlite3.Cursor], object]:
        changes = [(change, order.batch, order.sku, place) for change, place in _changes(order, source, target)]

        def effect(cursor: sqlite3.Cursor) -> None:
            cursor.executemany("UPDATE shelf SET quantity = quantity + ? WHERE batch = ? AND sku = ? AND place = ?", changes)
            cursor.execute("INSERT INTO move VALUES (?, ?, ?)", (order.batch, order.id, f"{source} to {target}"))

        return effect

    def counted(self, batch: str, /) -> Callable[[sqlite3.Cursor], object]:
        def effect(cursor: sqlite3.Cursor) -> object:
            shelves: dict[str, dict[str, int]] = {}
            for sku, place, quantity in cursor.execute("SELECT sku, place, quantity FROM shelf WHERE batch = ?", (batch,)):
                shelves.setdefault(sku, {})[place] = quantity
            moves: dict[str, list[str]] = {}
            for reference, what in cursor.execute("SELECT reference, what FROM move WHERE batch = ? ORDER BY rowid", (batch,)):
                moves.setdefault(reference, []).append(what)
            return {"shelves": shelves, "moves": moves}

        return effect


class PostgresStock:
    """Two tables beside the workflows'. Orders move at once: the rows of a shelf are locked in one order, that of their names."""

    def opened(self, batch: str, levels: Mapping[str, int], /) -> SqlEffect:
        rows = [(batch, sku, place, level if place == "free" else 0) for sku, level in levels.items() for place in _PLACES]

        async def effect(cursor: AsyncCursor[TupleRow]) -> None:
            await cursor.execute("SELECT pg_advisory_xact_lock(1)")  # two batches may open at the same moment
            await cursor.execute("CREATE TABLE IF NOT EXISTS shelf (batch text, sku text, place text, quantity bigint)")
            await cursor.execute("CREATE TABLE IF NOT EXISTS move (id bigserial, batch text, reference text, what text)")
            await cursor.executemany("INSERT INTO shelf VALUES (%s, %s, %s, %s)", rows)

        return effect

    def moved(self, order: Order, source: Place, target: Place, /) -> SqlEffect:
        changes = sorted(_changes(order, source, target), key=lambda change: change[1])
        move = order.batch, order.id, f"{source} to {target}"

        async def effect(cursor: AsyncCursor[TupleRow]) -> None:
            for change, place in changes:
                await cursor.execute(
                    "UPDATE shelf SET quantity = quantity + %s WHERE batch = %s AND sku = %s AND place = %s",
                    (change, order.batch, order.sku, place),
                )
            await cursor.execute("INSERT INTO move (batch, reference, what) VALUES (%s, %s, %s)", move)

        return effect

    def counted(self, batch: str, /) -> SqlEffect:
        async def effect(cursor: AsyncCursor[TupleRow]) -> object:
            shelves: dict[str, dict[str, int]] = {}
            await cursor.execute("SELECT sku, place, quantity FROM shelf WHERE batch = %s", (batch,))
            for sku, place, quantity in await cursor.fetchall():
                shelves.setdefault(sku, {})[place] = quantity
            moves: dict[str, list[str]] = {}
            await cursor.execute("SELECT reference, what FROM move WHERE batch = %s ORDER BY id", (batch,))
            for reference, what in await cursor.fetchall():
                moves.setdefault(reference, []).append(what)
            return {"shelves": shelves, "moves": moves}

        return effect


class RedisStock:
    """A hash and a list beside the workflows'. Nothing is undone on Redis, so what can refuse comes before the first write."""

    def __init__(self, hash_key: Callable[[str], str]) -> None:
        self._hash_key = hash_key  # gives a key in the slot of the workflows

    def opened(self, batch: str, levels: Mapping[str, int], /) -> LuaEffect:
        from durable_redis import LuaEffect

        fields: list[str | int] = []
        for sku, level in levels.items():
            for place in _PLACES:
                fields += [_on(sku, place), level if place == "free" else 0]
        return LuaEffect("redis.call('HSET', KEYS[1], unpack(ARGV))", self._keys(batch), fields)

    def moved(self, order: Order, source: Place, target: Place, /) -> LuaEffect:
        from durable_redis import LuaEffect

        places = [_on(order.sku, source), _on(order.sku, target)]
        arguments: list[str | int] = [*places, order.quantity, f"{order.id}\n{source} to {target}"]
        return LuaEffect(_MOVED, self._keys(order.batch), arguments)

    def counted(self, batch: str, /) -> LuaEffect:
        from durable_redis import LuaEffect

        return LuaEffect(_COUNTED, self._keys(batch))

    def _keys(self, batch: str) -> list[str]:
        return [self._hash_key(f"shelf/{batch}"), self._hash_key(f"move/{batch}")]


_MOVED: Final = """
if tonumber(redis.call('HGET', KEYS[1], ARGV[1])) < tonumber(ARGV[3]) then error('there is too little of ' .. ARGV[1]) end
redis.call('HINCRBY', KEYS[1], ARGV[1], -ARGV[3])
redis.call('HINCRBY', KEYS[1], ARGV[2], ARGV[3])
redis.call('RPUSH', KEYS[2], ARGV[4])
"""

_COUNTED: Final = """
local shelves, moves = {}, {}
local fields = redis.call('HGETALL', KEYS[1])
for at = 1, #fields, 2 do
  local sku, place = string.match(fields[at], '^(.*)/(.*)$')
  shelves[sku] = shelves[sku] or {}
  shelves[sku][place] = tonumber(fields[at + 1])
end
for _, move in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local reference, what = string.match(move, '^(.*)\\n(.*)$')
  moves[reference] = moves[reference] or {}
  table.insert(moves[reference], what)
end
return cjson.encode({shelves = shelves, moves = moves})
"""  # cjson keeps fourteen digits and knows no empty list: there are fewer goods than that, and no list here is empty


class MemoryStock:
    """A dict, for tests."""

    def opened(self, batch: str, levels: Mapping[str, int], /) -> Callable[[dict[str, object]], object]:
        shelves = {sku: {place: level if place == "free" else 0 for place in _PLACES} for sku, level in levels.items()}

        def effect(data: dict[str, object]) -> None:
            data[batch] = {"shelves": shelves, "moves": {}}

        return effect

    def moved(self, order: Order, source: Place, target: Place, /) -> Callable[[dict[str, object]], object]:
        def effect(data: dict[str, object]) -> None:
            count = as_count(data[order.batch])
            shelf = dict(count.shelves[order.sku])
            for change, place in _changes(order, source, target):
                shelf[place] += change
            moves = [*count.moves.get(order.id, ()), f"{source} to {target}"]
            data[order.batch] = {
                "shelves": {**count.shelves, order.sku: shelf},
                "moves": {**count.moves, order.id: moves},
            }

        return effect

    def counted(self, batch: str, /) -> Callable[[dict[str, object]], object]:
        return lambda data: data[batch]


_PLACES: tuple[Place, ...] = ("free", "reserved", "shipped")


def _on(sku: str, place: Place) -> str:
    return f"{sku}/{place}"


def _changes(order: Order, source: Place, target: Place) -> tuple[tuple[int, Place], tuple[int, Place]]:
    return (-order.quantity, source), (order.quantity, target)
