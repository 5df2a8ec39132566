"""Values from the world: one verdict, and back as they were."""

import sys
from datetime import timedelta

import pytest

from durable_core.codec import JsonCodec
from durable_core.contract import CheckpointCodec
from durable_core.errors import NotEncodable, NotParsed
from durable_core.keys import inbox_key
from durable_sqlite import SqliteCheckpointer, SqliteDurable, SqliteScheduler

NOW = timedelta(0)
LONG = timedelta(hours=1)


class PickyBytes:
    """A codec whose encoding is bytes, with what text could not hold."""

    def encode(self, value: object, /) -> bytes:
        return b"\x00\xff" + JsonCodec().encode(value).encode("utf-16")

    def decode(self, encoded: bytes, /) -> object:
        if not encoded.startswith(b"\x00\xff"):
            raise ValueError("not mine")
        return JsonCodec().decode(encoded[2:].decode("utf-16"))


class Raw:
    """A codec of an application's that gives text as it is, surrogates and all."""

    def encode(self, value: object, /) -> str:
        assert isinstance(value, str)
        return value

    def decode(self, encoded: str, /) -> object:
        return encoded


class Wrong:
    """A codec that gives something that no column holds."""

    def encode(self, value: object, /) -> str:
        return [value]  # type: ignore[return-value] # pyright: ignore[reportReturnType]

    def decode(self, encoded: str, /) -> object:
        return encoded


def with_codec(durable: SqliteDurable, codec: CheckpointCodec[str] | CheckpointCodec[bytes]) -> SqliteDurable:
    connection = durable.checkpointer.connection
    return SqliteDurable(SqliteCheckpointer(connection, codec=codec), SqliteScheduler(connection))


async def through_everything(durable: SqliteDurable, value: object) -> list[object]:
    """Give what each way into the store and out of it makes of a value."""
    checkpointer = durable.checkpointer
    holder = await checkpointer.claim("w", LONG, LONG)
    assert holder is not None
    found: list[object] = [
        (await checkpointer.record(holder, "record", value)).value,
        (await checkpointer.supply("w", "supply", value)).value,
        await checkpointer.transact(holder, "transact", lambda _cursor: value),
        (await checkpointer.append("w", value)).value,
        (await durable.arrive("w", "arrive", value)).value,
        (await durable.deliver("w", value)).value,
    ]
    await checkpointer.release(holder)
    found += (await checkpointer.load("w")).values()
    found += [written.value for written in (await checkpointer.history("w")).values()]
    (turn,) = await durable.begin(NOW, LONG)
    assert turn.records is not None
    found += turn.records.values()
    found.append((await durable.finish(turn, value)).value)
    assert len(found) == 25
    return found


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        False,
        "",
        [],
        {},
        {"k": [1, {"l": None}]},
        1.5,
        -0.0,
        5e-324,
        "ü🦆\u2028",
        "'; --",
        2**53 + 1,
        2**63,
        2**64 - 1,
        -(2**80),
    ],
)
async def test_values_come_back_type_for_type(durable: SqliteDurable, value: object) -> None:
    """Cases 61 and 132: through every method, equal and of the same type; nothing is taken for "no result yet"."""
    for found in await through_everything(durable, value):
        assert repr(found) == repr(value)


async def test_values_with_nul_and_many_digits(durable: SqliteDurable) -> None:
    """Cases 58 and 61: NUL inside a value is carried, and an integer of four thousand digits."""
    for found in await through_everything(durable, {"a\0b": "c\0d", "n": 10**4_000}):
        assert found == {"a\0b": "c\0d", "n": 10**4_000}


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), [{"a": float("-inf")}], {1: "a"}, {"a", "b"}, b"bytes", object(), "x\ud83d", {"\udc97": 1}],
    ids=range(9),
)
async def test_values_that_are_refused_leave_everything_usable(durable: SqliteDurable, value: object) -> None:
    """Cases 53, 56 and 60: refused by name before anything is written, and the next call on the same pass works."""
    checkpointer = durable.checkpointer
    holder = await checkpointer.claim("w", LONG, LONG)
    assert holder is not None
    for call in (
        checkpointer.record(holder, "k", value),
        checkpointer.supply("w", "k", value),
        checkpointer.transact(holder, "k", lambda _cursor: value),
        checkpointer.append("w", value),
        durable.arrive("w", "k", value),
        durable.deliver("w", value),
    ):
        with pytest.raises(NotEncodable) as refused:
            await call
        assert refused.value.workflow == "w"
    with pytest.raises(NotEncodable):
        checkpointer.roundtrip(value)
    assert await checkpointer.load("w") == {}
    assert (await checkpointer.record(holder, "k", "fine")).first


async def test_values_of_ten_megabytes(durable: SqliteDurable) -> None:
    """Case 64: ten megabytes come back as they were, as a record and as a message."""
    holder = await durable.checkpointer.claim("w", LONG, LONG)
    assert holder is not None
    large = "0123456789" * 1_000_000
    assert (await durable.checkpointer.record(holder, "k", large)).value == large
    await durable.deliver("w", large)
    assert await durable.checkpointer.load("w") == {"k": large, inbox_key(1): large}
    assert not (await durable.checkpointer.record(holder, "k", large[1:])).first
    assert sys.getsizeof(large) > 10_000_000


async def test_codec_of_bytes(durable: SqliteDurable) -> None:
    """A codec may give bytes; ties are told by the encoding, as with text."""
    own = with_codec(durable, PickyBytes())
    for found in await through_everything(own, {"ü": [1]}):
        assert found == {"ü": [1]}
    assert not (await own.checkpointer.supply("w", "supply", 2)).first


async def test_codec_that_was_replaced_cannot_read_the_old(durable: SqliteDurable) -> None:
    """[CKP-LOAD-CODEC] What another codec wrote is `NotParsed` by name, and no wrong value."""
    await durable.checkpointer.supply("w", "k", 1)
    own = with_codec(durable, PickyBytes())
    with pytest.raises(NotParsed) as refused:
        await own.checkpointer.load("w")
    assert (refused.value.workflow, refused.value.key) == ("w", "k")
    assert await durable.checkpointer.load("w") == {"k": 1}


@pytest.mark.parametrize("value", ["x\ud83d", "a\0b"])
async def test_codec_that_gives_what_no_column_holds(durable: SqliteDurable, value: str) -> None:
    """Cases 58 and 60: a codec that lets bad text through is refused by name, and the connection works on."""
    own = with_codec(durable, Raw())
    with pytest.raises(NotEncodable):
        await own.checkpointer.supply("w", "k", value)
    assert (await own.checkpointer.supply("w", "k", "fine")).first


async def test_codec_that_gives_neither_text_nor_bytes(durable: SqliteDurable) -> None:
    """It is refused by name, before anything is written."""
    own = with_codec(durable, Wrong())
    with pytest.raises(NotEncodable, match="the codec gave list"):
        await own.checkpointer.supply("w", "k", 1)
    assert await durable.checkpointer.load("w") == {}
