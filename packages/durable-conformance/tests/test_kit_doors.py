"""The three doors to the one engine, as a stranger would go through them: in a folder of their own, in processes of their own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from durable_conformance import check
from durable_conformance.mutants.harness import DoubleHarness
from durable_conformance.mutants.registry import mutants

STORE = '''
"""A store of somebody's, and its tests."""

from contextlib import asynccontextmanager
from pathlib import Path

from durable_conformance import Conformance, Harness
from durable_core.memory import Memory, MemoryDurable

NOTHING = "it has no such thing"


class SomeHarness(Harness):
    name = "some"
    offers = frozenset({"clock"})
    lacks = dict.fromkeys(
        tuple("codec effects halves joined kill loss meter processes queues restart retention skew wire".split()),
        NOTHING,
    )

    def __init__(self):
        self.kept = "", None

    @asynccontextmanager
    async def open(self, at):
        if self.kept[0] != at.name:
            self.kept = at.name, Memory(at.clock)
        yield MemoryDurable(memory=self.kept[1], queue=at.queue, lease=at.lease)


class TestSome(Conformance):
    harness = SomeHarness
    gaps = Path(__file__).with_name("gaps.toml")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stranger's folder, with a store and its tests."""
    (tmp_path / "test_some.py").write_text(STORE)
    (tmp_path / "gaps.toml").write_text("")
    return tmp_path


def ran(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a module of Python's in a folder, and give what came of it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DURABLE"))}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**kept, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=100,
    )


def pytest_run(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run pytest there, with warnings as errors and unknown markers refused."""
    strict = ["-q", "-W", "error", "--strict-markers", "--strict-config", "-p", "no:cacheprovider"]
    if "asyncio" not in arguments:
        strict += ["-p", "no:asyncio"]
    return ran(folder, "pytest", *strict, *arguments, environment=environment)


def modes() -> Sequence[Sequence[str]]:
    """Give the ways in which a consumer may have pytest set up."""
    found: list[Sequence[str]] = [(), ("-p", "no:anyio", "-p", "no:xdist")]
    if find_spec("pytest_asyncio"):
        plain = ("-p", "asyncio", "-o", "asyncio_default_fixture_loop_scope=function")
        found += [(*plain, "-o", "asyncio_mode=strict"), (*plain, "-o", "asyncio_mode=auto")]
        found.append((*plain, "-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session"))
    if find_spec("xdist"):
        found.append(("-n", "2"))
    return found


@pytest.mark.parametrize("mode", modes(), ids=" ".join)
def test_the_tests_run_whatever_plugins_there_are(folder: Path, mode: Sequence[str]) -> None:
    """They are plain functions, with event loops of their own."""
    done = pytest_run(folder, "-k", "LOAD_EMPTY or WAKE_COUNT or covered", *mode)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "some: of " in done.stdout


def test_a_vendored_copy_runs_without_the_plugin(folder: Path) -> None:
    """The package, copied into the tree, needs no entry point."""
    import durable_conformance

    home = durable_conformance.__file__
    assert home is not None
    shutil.copytree(Path(home).parent, folder / "vendored" / "durable_conformance")
    done = pytest_run(
        folder, "-k", "CKP_LOAD", "-p", "no:durable-conformance", environment={"PYTHONPATH": str(folder / "vendored")}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_failure_tells_clause_promise_sight_and_where_to_read(folder: Path) -> None:
    """And the test's name has the clause's id."""
    broken = STORE.replace("yield MemoryDurable(memory", "yield Sorted(memory")
    sort = (
        "\n\nclass Sorted(MemoryDurable):\n    def __init__(self, **options):\n        super().__init__(**options)\n"
        "        load = self.checkpointer.load\n\n        async def sorted_load(workflow, /, *, skip=0):\n"
        "            return dict(sorted((await load(workflow, skip=skip)).items()))\n\n"
        "        self.checkpointer.load = sorted_load\n"
    )
    (folder / "test_some.py").write_text(broken + sort)
    done = pytest_run(folder, "-k", "keys_come_as")
    assert done.returncode == 1
    for part in (
        "test_CKP_LOAD_ORDER_keys_come_as_they_were_first_recorded",
        "CKP-LOAD-ORDER: The order MUST be that in which each key was first recorded",
        "promised: the keys of load: ['c', 'a', 'b'",
        "seen: ['10', '9', 'B'",
        "docs/reference/contract.md#ckp-load-order",
    ):
        assert part in done.stdout


def test_what_no_hook_covers_fails_until_a_gap_says_why(folder: Path) -> None:
    """Nothing is passed over in silence."""
    store = folder / "test_some.py"
    store.write_text(STORE.replace("queues ", ""))
    done = pytest_run(folder, "-k", "covered or QUEUE")
    assert done.returncode == 1
    assert "the harness does not offer queues: 1 test\n    test_SCH_QUEUE_NAMED_queues_do_not_see_each_other" in done.stdout
    (folder / "gaps.toml").write_text('[some]\n"SCH-QUEUE-NAMED" = "one queue only, so far"\n')
    done = pytest_run(folder, "-k", "covered or QUEUE")
    assert done.returncode == 0, done.stdout
    assert "1 xfailed" in done.stdout


def test_a_gap_that_is_closed_fails(folder: Path) -> None:
    """Until it is removed from the file."""
    (folder / "gaps.toml").write_text('[some]\n"CKP-LOAD-EMPTY" = "not yet"\n')
    done = pytest_run(folder, "-k", "LOAD_EMPTY")
    assert done.returncode == 1
    assert "the declared gap is closed: remove it" in done.stdout


def test_a_report_that_is_kept_with_the_store_must_be_current(folder: Path) -> None:
    """A test that comes to another verdict than it tells fails, and so does one that it knows nothing of."""
    done = ran(folder, "durable_conformance", "test_some.py:SomeHarness", "--only", "LOAD-EMPTY", "--json", "report.json")
    assert done.returncode == 0, done.stdout + done.stderr
    store, report = folder / "test_some.py", folder / "report.json"
    store.write_text(STORE + '    report = Path(__file__).with_name("report.json")\n')
    assert pytest_run(folder, "-k", "LOAD_EMPTY").returncode == 0
    report.write_text(report.read_text().replace('"held"', '"gap"'))
    done = pytest_run(folder, "-k", "LOAD_EMPTY")
    assert done.returncode == 1
    assert "report.json says gap, and it is held: write it anew" in done.stdout
    done = pytest_run(folder, "-k", "LOAD_ORDER")
    assert done.returncode == 1
    assert "report.json says not covered, and it is held" in done.stdout


def test_the_command_line_runs_a_harness_by_name(folder: Path) -> None:
    """By a file or a module; it writes each report, and its exit code is zero."""
    done = ran(
        folder, "durable_conformance", "test_some.py:SomeHarness", "--only", "CKP-LOAD",
        "--json", "report.json", "--junit", "report.xml",
        "--markdown", "report.md",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((folder / "report.json").read_text())
    assert told["stores"][0]["store"] == "some"
    assert {"report.xml", "report.md"} <= {one.name for one in folder.iterdir()}
    assert "not applicable" in done.stdout


@pytest.mark.parametrize(
    ("name", "only", "code"),
    [
        ("durable_conformance.mutants.registry:mutant_M50", "CKP-LOAD-ORDER", 1),
        ("durable_conformance.mutants.harness:DoubleHarness", "LOAD-SHARED", 3),
        ("durable_conformance.mutants.harness:NoSuchHarness", "CKP-LOAD", 2),
        ("test_some.py:STORE", "CKP-LOAD", 2),
    ],
)
def test_the_exit_code_of_the_command_line(folder: Path, name: str, only: str, code: int) -> None:
    """1: broken; 3: not covered; 2: could not be run."""
    done = ran(folder, "durable_conformance", name, "--only", only)
    assert done.returncode == code, done.stdout + done.stderr


def test_the_command_line_lists_what_it_would_ask(folder: Path) -> None:
    """Each test with its promise."""
    done = ran(folder, "durable_conformance", "--list", "--only", "CKP-LOAD-EMPTY")
    assert done.returncode == 0
    assert "test_CKP_LOAD_EMPTY_reading_creates_nothing: After load and history" in done.stdout


def test_the_function_returns_a_report() -> None:
    """With what each case came to, as it came."""
    told: list[str] = []
    report = check(DoubleHarness, only="CKP-LOAD-EMPTY", seed="7", told=lambda result: told.append(result.verdict))
    assert told == ["held", "held"]
    assert (report.store, report.seed, report.exit_code, len(report.results)) == ("double", "7", 0, 2)
    assert report.by_clause["CKP-LOAD-EMPTY"] == "held"


def test_a_report_of_a_mutant_is_broken_in_its_clause() -> None:
    """By the function, too."""
    (mutant,) = (one for one in mutants() if one.id == "M19")
    report = check(mutant.harness, only="CKP-RECORD-FENCED")
    assert report.by_clause["CKP-RECORD-FENCED"] == "broken"
    assert report.exit_code == 1


def test_the_plugin_brings_nothing_of_the_kit_into_other_peoples_sessions(folder: Path) -> None:
    """A session without conformance tests loads neither the kit nor the core."""
    (folder / "test_some.py").write_text(
        "import sys\n\ndef test_nothing():\n    assert 'durable_conformance.plugin' in sys.modules\n"
        "    assert not {'durable_core', 'durable_conformance.case', 'hypothesis.stateful'} & set(sys.modules)\n"
    )
    done = ran(folder, "pytest", "-q", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
