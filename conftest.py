"""What all tests of the repository share: documents run, hypothesis keeps to one profile, and no test hangs for ever."""

import faulthandler
import os
import shutil
import tempfile
from collections.abc import Generator

import pytest
from hypothesis import settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# The one server that no wheel brings; where it is not installed, the report names the tests that went without.
os.environ.setdefault("DURABLE_TEST_ALLOW_MISSING", "pgbouncer")

_GRACE_SECONDS = 60.0

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


class LastResort:
    """Ends the process of a test that its own time limit did not end, and says where each thread was.

    That limit is an exception in the main thread: a callback of asyncio can swallow it, and it is not set again for what a test
    that failed still has to tear down.
    """

    def __init__(self) -> None:
        self._stderr = os.dup(2)  # pytest captures the descriptor itself while a test runs

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._set(item)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        self._set(item)  # pytest takes it back where a test has failed
        return (yield)

    def _set(self, item: pytest.Item) -> None:
        marked = item.get_closest_marker("timeout")
        limit = float(marked.args[0] if marked else item.config.getini("timeout"))
        faulthandler.dump_traceback_later(limit + _GRACE_SECONDS, file=self._stderr, exit=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LastResort())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep the blocks of one document on one process: each builds on those before it."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs]

    class ByDocument(LoadScopeScheduling):  # type: ignore[misc]
        def remove_node(self, node: object) -> str | None:
            """Hand on what a process that died has left, which is neither what it had done nor the test that it died in."""
            mine = self.assigned_work.pop(node)  # pyright: ignore[reportArgumentType]
            left = {scope: tests for scope, tests in mine.items() if not all(tests.values())}
            if not left:
                return None
            scope, tests = next(iter(left.items()))
            crashed: str = next(test for test, done in tests.items() if not done)
            tests[crashed] = True
            if all(tests.values()):
                del left[scope]
            self.workqueue.update(left)
            for other in self.assigned_work:
                self._reschedule(other)
            return crashed

        def _split_scope(self, nodeid: str) -> str:
            document, _, _ = nodeid.partition("::")
            return document if document.endswith(".md") else nodeid

    return ByDocument(config, log)  # pyright: ignore[reportArgumentType]
