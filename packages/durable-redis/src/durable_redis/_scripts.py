"""The Lua scripts, one file an operation, read when first used: a line `--@include NAME` stands for `lua/include/NAME.lua`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Variant = Literal["set", "stream"]
_INCLUDE = "--@include "
_VARIED = ("queue", "both", "wakeups")  # what differs between the schedulers


@dataclass(frozen=True, slots=True)
class Script:
    """A script as it is sent. `plain` is for servers below 7.0, which do not compile a first line that begins with `#!`."""

    name: str
    text: bytes
    sha: bytes
    plain: bytes
    plain_sha: bytes


@cache
def script(name: str, variant: Variant = "set") -> Script:
    """Give a script by the name of its operation, for one of the schedulers."""
    lines = list[str]()
    for line in _read(f"{name}.lua").splitlines():
        lines += _included(line.removeprefix(_INCLUDE), variant) if line.startswith(_INCLUDE) else [line]
    text = "\n".join(lines)
    plain = "\n".join(lines[1:])
    return Script(name, text.encode(), _sha(text), plain.encode(), _sha(plain))


def _included(name: str, variant: Variant) -> list[str]:
    return _read(f"include/{name}_{variant}.lua" if name in _VARIED else f"include/{name}.lua").splitlines()


def _read(path: str) -> str:
    return files("durable_redis").joinpath("lua", path).read_text(encoding="utf-8")


def _sha(text: str) -> bytes:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest().encode()
