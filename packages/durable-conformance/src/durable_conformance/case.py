"""A case: one observation that shows one clause; and the list of all cases."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from durable_conformance.clauses import Clause, clause
from durable_conformance.harness import Hook
from durable_core.contract import Description

if TYPE_CHECKING:
    from durable_conformance.bench import Bench

Body: TypeAlias = Callable[["Bench"], Awaitable[None]]
Applies: TypeAlias = Callable[[Description], bool]


@dataclass(frozen=True, slots=True)
class Case:
    """One observation of one clause.

    `needs` are the hooks without which it is not covered; `when` says for which descriptions the clause applies; `real` asks
    for real time even where the store's clock could be moved; `short` says that windows and leases run out in it, which else
    they do not; `apart` names the state machine that is the case instead of its body.
    """

    clause: Clause
    body: Body
    needs: frozenset[Hook]
    when: Applies | None
    real: bool
    short: bool
    apart: str

    @property
    def name(self) -> str:
        """Give the test's name: the clause's id, then what is seen."""
        return f"test_{self.clause.id.replace('-', '_')}_{self.body.__name__}"

    @property
    def promise(self) -> str:
        """Give what the case looks at, in one sentence."""
        return (self.body.__doc__ or "").strip()


_cases: dict[str, Case] = {}


def shows(
    name: str, *needs: Hook, when: Applies | None = None, real: bool = False, short: bool = False, apart: str = ""
) -> Callable[[Body], Body]:
    """Make a case of a function that takes a `Bench` and asks for what one clause promises."""

    def register(body: Body) -> Body:
        case = Case(clause(name), body, frozenset(needs), when, real, short, apart)
        if _cases.setdefault(case.name, case).body.__code__ is not body.__code__:
            raise ValueError(f"two cases are called {case.name}")
        return body

    return register


@cache
def cases() -> Sequence[Case]:
    """Give all cases, in the order of the contract's clauses."""
    suite = importlib.import_module(f"{__package__}.suite")
    for module in pkgutil.iter_modules(suite.__path__, f"{suite.__name__}."):
        importlib.import_module(module.name)
    from durable_conformance.clauses import clauses

    order = {name: place for place, name in enumerate(clauses())}
    return sorted(_cases.values(), key=lambda case: order[case.clause.id])
