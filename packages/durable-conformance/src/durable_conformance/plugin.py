"""The pytest plugin: what the conformance tests of a session came to, a line for each store. It imports nothing of the kit."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from typing import Protocol

import pytest


class Terminal(Protocol):
    """What pytest hands to a summary."""

    def section(self, title: str) -> None:
        """Begin a section."""
        ...

    def line(self, text: str) -> None:
        """Write a line."""
        ...


class Tally:
    """Counts verdicts, by store and clause; under xdist it is the controller that counts."""

    def __init__(self) -> None:
        self._verdicts: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what one test came to."""
        properties = {name: str(value) for name, value in report.user_properties}
        if report.when == "call" and {"clause", "store", "verdict"} <= properties.keys():
            self._verdicts[properties["store"]][properties["clause"]].add(properties["verdict"])

    def pytest_terminal_summary(self, terminalreporter: Terminal) -> None:
        """Say for each store how many clauses are held."""
        if not self._verdicts:
            return
        terminalreporter.section("conformance")
        for store, clauses in self._verdicts.items():
            worst = ("broken", "error", "closed", "not covered", "gap", "held", "not applicable")
            counts = Counter(next(verdict for verdict in worst if verdict in verdicts) for verdicts in clauses.values())
            told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in worst if counts[verdict] and verdict != "held")
            terminalreporter.line(f"{store}: of {len(clauses)} clauses {counts['held']} held{', ' + told if told else ''}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the long run and the seed."""
    group = parser.getgroup("durable-conformance")
    group.addoption("--durable-long", action="store_true", help="let the conformance tests take the time of a night")
    group.addoption("--durable-seed", help="what chance begins with in the conformance tests; a failure prints it")


def pytest_configure(config: pytest.Config) -> None:
    """Hand the options on, by the environment, which child processes share."""
    if config.getoption("--durable-long"):
        os.environ["DURABLE_CONFORMANCE_LONG"] = "1"
    seed = config.getoption("--durable-seed")
    if seed:
        os.environ["DURABLE_CONFORMANCE_SEED"] = str(seed)
    config.pluginmanager.register(Tally(), "durable-conformance-tally")
