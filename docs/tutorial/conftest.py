"""The tutorials' programs write files: each block runs in a folder of its own."""

import contextlib
import tempfile
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return (yield)
