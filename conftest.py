"""What all tests of the repository share: the Python in the documents runs, and hypothesis keeps to one profile."""

import os
import shutil
import tempfile

import pytest
from hypothesis import settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# The one server that no wheel brings; where it is not installed, the report names the tests that went without.
os.environ.setdefault("DURABLE_TEST_ALLOW_MISSING", "pgbouncer")

# In CI the same examples every time; `--hypothesis-profile=nightly` looks for new ones.
settings.register_profile("repository", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("repository")


def _enter(namespace: dict[str, object]) -> None:
    """The Python of a document runs in a folder of its own, where it may leave files."""
    namespace["_left"], namespace["_entered"] = os.getcwd(), tempfile.mkdtemp()
    os.chdir(str(namespace["_entered"]))


def _leave(namespace: dict[str, object]) -> None:
    os.chdir(str(namespace["_left"]))
    shutil.rmtree(str(namespace["_entered"]))


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["*.md"], setup=_enter, teardown=_leave
).pytest()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep the blocks of one document on one process: each builds on those before it."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs]

    class ByDocument(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            document, _, _ = nodeid.partition("::")
            return document if document.endswith(".md") else nodeid

    return ByDocument(config, log)  # pyright: ignore[reportArgumentType]
