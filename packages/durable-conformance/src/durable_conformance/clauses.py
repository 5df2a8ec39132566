"""The clauses of the contract, read from the docstrings that state them, and the page that lists them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType

ENGINE = ("run", "resume", "worker", "graph", "client", "testing", "errors", "parsing", "_settle", "outcome", "split")

_BEGIN = re.compile(r"^\[((?:CKP|SCH|DUR|CAT|CDC|ANY|RUN)-[A-Z]+(?:-[A-Z]+)*)\]\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Clause:
    """One obligation: its id, its words, and the name of the object whose docstring states it."""

    id: str
    text: str
    where: str

    @property
    def anchor(self) -> str:
        """Where the clause stands on the contract's page."""
        return self.id.lower()

    @property
    def by_engine(self) -> bool:
        """Whether the engine owes it and not a store: core's own tests hold it, and no store can break it."""
        return self.id.startswith("RUN-")


@cache
def clauses() -> Mapping[str, Clause]:
    """Give every clause by its id, in the order of the contract."""
    found: dict[str, Clause] = {}
    for where, doc in _docstrings():
        for clause in _parsed(where, doc):
            found.setdefault(clause.id, clause)
    return found


def clause(name: str) -> Clause:
    """Give one clause. Raises: `LookupError` for an id that the contract does not have."""
    try:
        return clauses()[name]
    except KeyError:
        raise LookupError(f"the contract has no clause {name}") from None


def _parsed(where: str, doc: str) -> Iterator[Clause]:
    name, words = "", list[str]()
    for line in [*doc.splitlines(), ""]:
        begun = _BEGIN.match(line.strip())
        if begun or not line.strip():
            if name:
                yield Clause(name, " ".join(words), where)
            name, words = (begun[1], [begun[2]]) if begun else ("", [])
        elif name:
            words.append(line.strip())


def _docstrings() -> Iterator[tuple[str, str]]:
    contract = importlib.import_module("durable_core.contract")
    yield from _documented(contract)
    for name in ENGINE:
        try:
            module = importlib.import_module(f"durable_core.{name}")
        except ModuleNotFoundError:
            continue
        yield from _documented(module)


def _documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Give the docstrings of a module, of what it defines, and of what its classes define, in the order of the source."""
    yield module.__name__.rpartition(".")[2], inspect.getdoc(module) or ""
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", None) != module.__name__ or not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        yield name, (thing.__doc__ and inspect.cleandoc(thing.__doc__)) or ""
        if inspect.isclass(thing):
            for part, member in vars(thing).items():
                inner = member.fget if isinstance(member, property) else member
                doc = getattr(inner, "__doc__", None)
                if doc and (inspect.isfunction(inner) or isinstance(inner, (classmethod, staticmethod))):
                    yield f"{name}.{part}", inspect.cleandoc(doc)
