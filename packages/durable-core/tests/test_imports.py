"""What an import loads, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import durable_core

OUTER = ["graph", "memory", "reference", "split", "testing", "worker", "_running", "_same", "_memory"]


def loaded(program: str) -> set[str]:
    """Give the modules that a fresh interpreter holds after a program."""
    answer = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())


def loaded_alone(module: str) -> set[str]:
    """Give what a module loads by itself, without the package's own `__init__`."""
    folder = Path(durable_core.__file__).parent
    stub = f"import sys, types; package = types.ModuleType('durable_core'); package.__path__ = [{str(folder)!r}]"
    return loaded(f"{stub}; sys.modules['durable_core'] = package; import durable_core.{module}")


@pytest.mark.parametrize("module", ["contract", "errors", "codec", "keys", "parsing", "outcome"])
def test_the_contract_and_its_helpers_load_no_asyncio(module: str) -> None:
    """A store's own modules and a parser can be used where there is no event loop."""
    assert "asyncio" not in loaded_alone(module)


def test_the_inner_ring_does_not_load_the_outer_one() -> None:
    """`import durable_core` is what a body and a handler need, and no more."""
    assert not {f"durable_core.{module}" for module in OUTER} & loaded("import durable_core")


@pytest.mark.parametrize("module", ["importlib.metadata", "graphlib", "decimal", "urllib.parse", "sqlite3", "typing_extensions"])
def test_the_inner_ring_loads_nothing_dear(module: str) -> None:
    """What only some programs need is imported when they ask for it."""
    assert module not in loaded("import durable_core")


@pytest.mark.parametrize("module", ["durable_core", "durable_core.graph", "durable_core.memory"])
def test_the_library_needs_nothing_but_the_standard_library(module: str) -> None:
    """Without the installed distributions on the path, the package imports as it is."""
    source = str(Path(durable_core.__file__).parents[1])
    subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({source!r}); import {module}"], check=True)
