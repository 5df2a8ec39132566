"""`LuaEffect`: what Redis can commit beside a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from durable_core.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class LuaEffect:
    """A piece of Lua that runs in the script that records its result.

    It sees `KEYS`, `ARGV` and `redis.call`, `pcall`, `sha1hex`, `error_reply`, `status_reply`, `setresp` and `log`. It returns a
    string that already is the encoding of its value, or nothing, which stands for None: a number, a table or a status is refused,
    because Lua changes large numbers and empty tables. Write `return redis.call('HGET', KEYS[1], 'n')` after the HINCRBY.

    Redis does not undo: check everything before the first write, or an error after it leaves the key torn. [CKP-TRANSACT-TORN]
    Every key carries the tag of the workflow's partition: see `hash_key`. Arguments are sent as their digits or their text.
    """

    source: str
    keys: Sequence[str | bytes] = ()
    args: Sequence[str | bytes | int | float] = ()

    def wire_keys(self) -> list[bytes]:
        """Give the keys as bytes."""
        return [_wire(key) for key in self.keys]

    def wire_args(self) -> list[bytes]:
        """Give the arguments as bytes."""
        return [_wire(arg) for arg in self.args]


def check(effect: object) -> None:
    """Refuse what is no effect of this store."""
    if not isinstance(effect, LuaEffect):
        raise Misconfigured(f"transact on Redis takes a LuaEffect(source, keys, args), and not {type(effect).__name__}")
    if effect.source.lstrip().startswith("#!"):
        raise Misconfigured("the source of a LuaEffect is run inside the store's own script: leave out its first line, '#!lua'")


def _wire(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value).encode()
    raise TypeError(f"a LuaEffect sends str, bytes, int and float, and not {type(value).__name__}: {value!r}")
