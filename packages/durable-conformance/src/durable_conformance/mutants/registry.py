"""The list of mutants: stores that break one clause each, and the run that shows whether its cases see it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from durable_conformance.case import cases
from durable_conformance.clauses import Clause, clause
from durable_conformance.engine import Result, Session
from durable_conformance.harness import AnyHarness, Harness
from durable_conformance.mutants.double import DoubleCheckpointer, DoubleDurable, DoubleScheduler, Machine
from durable_conformance.mutants.harness import DoubleApplication, DoubleHarness
from durable_conformance.mutants.vault import Vault

C = TypeVar("C", bound=type)

_PARTS: Mapping[str, type] = {
    "machine": Machine,
    "checkpointer": DoubleCheckpointer,
    "scheduler": DoubleScheduler,
    "durable": DoubleDurable,
    "transaction": DoubleApplication,
    "vault": Vault,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A store that breaks one clause: how it does, and the harness that opens it."""

    id: str
    clause: Clause
    text: str
    harness: type[AnyHarness]


@dataclass(frozen=True, slots=True)
class Killing:
    """What the cases of its clause saw of a mutant; it is killed when one saw a promise broken, not an error."""

    mutant: Mutant
    results: Sequence[Result]

    @property
    def killed(self) -> bool:
        """Whether a case of the mutant's own clause saw it."""
        return any(result.verdict == "broken" for result in self.results)

    @property
    def by(self) -> Sequence[str]:
        """The cases that saw it."""
        return [result.case.name for result in self.results if result.verdict == "broken"]


_mutants: dict[str, Mutant] = {}


def mutant(id: str, name: str, text: str, on: type[DoubleHarness] = DoubleHarness) -> Callable[[C], C]:
    """Make a mutant of a part of the double, or of a whole harness."""

    def register(made: C) -> C:
        if id in _mutants:
            raise ValueError(f"two mutants are called {id}")
        if issubclass(made, Harness):
            harness: type = made
        else:
            part = next(part for part, base in _PARTS.items() if issubclass(made, base))
            harness = type(made.__name__, (on,), {part: made, "name": f"mutant {id}"})
            setattr(harness, "importable", classmethod(lambda _: f"{__name__}:mutant_{id}"))  # noqa: B010 - by a name that only this type has
        _mutants[id] = Mutant(id, clause(name), text, harness)
        return made

    return register


@cache
def mutants() -> Sequence[Mutant]:
    """Give all mutants, by their ids."""
    package = importlib.import_module("durable_conformance.mutants")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name.rpartition(".")[2].startswith("of_"):
            importlib.import_module(module.name)
    return sorted(_mutants.values(), key=lambda one: one.id)


def hunted(one: Mutant) -> Killing:
    """Run the cases of a mutant's clause on it."""
    with Session(one.harness()) as session:
        return Killing(one, [session.run(case) for case in cases() if case.clause == one.clause])


def score() -> Iterator[Killing]:
    """Hunt all mutants."""
    for one in mutants():
        yield hunted(one)


def __getattr__(name: str) -> type[AnyHarness]:
    """Give the harness of a mutant to another process, by the name that it was told."""
    for one in mutants() if name.startswith("mutant_") else ():
        if one.id == name.removeprefix("mutant_"):
            return one.harness
    raise AttributeError(name)
