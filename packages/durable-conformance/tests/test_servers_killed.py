"""Nothing is left running, and no folder stays, when a process that started servers is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from durable_conformance import servers
from durable_conformance.servers._resp import call
from durable_conformance.servers._server import wait_until

pytestmark = pytest.mark.skipif(
    os.environ.get("DURABLE_TEST_SERVERS") == "docker", reason="looks at processes of this machine, not of a container"
)

_EVERY_KIND = """
import sys, threading, time
from contextlib import ExitStack
from durable_conformance import servers
from durable_conformance.servers._units import own_keeper

stack = ExitStack()
makers = [servers.postgres, servers.redis, servers.redis_replica, servers.sentinel, servers.redis_cluster]
made = {}

def make(maker):
    made[maker.__name__] = stack.enter_context(maker())

threads = [threading.Thread(target=make, args=[maker]) for maker in makers]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
replica, watched, cluster = made["redis_replica"], made["sentinel"], made["redis_cluster"]
singles = [made["postgres"], made["redis"], replica.primary, replica.replica, watched.primary, watched.replica]
everything = [*singles, *watched.sentinels, *cluster.nodes]
try:
    everything.append(stack.enter_context(servers.pgbouncer(made["postgres"])))
except servers.NoServer:
    pass
"""

_ONE_OF_EACH = """
import sys, time
from contextlib import ExitStack
from durable_conformance import servers
from durable_conformance.servers._units import own_keeper

stack = ExitStack()
everything = [stack.enter_context(servers.postgres()), stack.enter_context(servers.redis())]
"""

_REPORT = """
import json
pids = [pid for server in everything for pid in server.pids]
folders = [str(server._unit.folder) for server in everything]
print(json.dumps({"pids": pids, "folders": folders, "keeper": own_keeper().pid}), flush=True)
time.sleep(600)
"""

_SHARED = """
import json, time
from durable_conformance import servers
with servers.shared("valkey") as address:
    print(json.dumps({"url": address.url, "pids": [], "folders": [], "keeper": 0}), flush=True)
    time.sleep(600)
"""


@dataclass(frozen=True, slots=True)
class _Started:
    """A process, and what it started."""

    process: subprocess.Popen[bytes]
    pids: list[int]
    folders: list[Path]
    keeper: int
    url: str

    def kill(self) -> None:
        """Kills it, as an out-of-memory killer or an impatient person does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def _process(program: str, **environ: str) -> Generator[_Started]:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ | environ) as process:
        assert process.stdout is not None
        try:
            said = json.loads(process.stdout.readline())
            folders = list(map(Path, said["folders"]))
            yield _Started(process, said["pids"], folders, said["keeper"], said.get("url", ""))
        finally:
            process.kill()


def _alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody has collected does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")


def _wait_until_nothing_is_left(pids: Iterable[int], folders: Iterable[Path]) -> None:
    wait_until(lambda: not any(map(_alive, pids)), "servers that are gone", 20)
    wait_until(lambda: not any(folder.exists() for folder in folders), "folders that are gone", 20)


def test_servers_of_every_kind_go_when_the_tests_are_killed() -> None:
    """SIGKILL to the process that tests: every server's every process ends, and their folders go."""
    with _process(_EVERY_KIND + _REPORT) as started:
        assert len(started.pids) > 17
        assert all(map(_alive, started.pids[:1]))

        started.kill()

        _wait_until_nothing_is_left([*started.pids, started.keeper], started.folders)


def test_paused_servers_go_though_a_child_lives_on() -> None:
    """Neither a server that was stopped with SIGSTOP nor a forked child that outlives its parent holds anything up."""
    trouble = "\nimport os\n[server.pause() for server in everything]\nif not (child := os.fork()): time.sleep(600)\n"
    with _process(_ONE_OF_EACH + trouble + _REPORT.replace('"pids": pids', '"pids": [*pids, child]')) as started:
        *pids, child = started.pids
        try:
            started.kill()

            _wait_until_nothing_is_left(pids, started.folders)
            assert _alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_servers_go_when_their_keeper_is_killed() -> None:
    """SIGKILL to the process that keeps the servers ends them too, also those that run as another user."""
    with tempfile.TemporaryDirectory() as folder:  # nobody is left to remove the servers' own
        os.chmod(folder, 0o755)
        with _process(_ONE_OF_EACH + _REPORT, TMPDIR=folder) as started:
            os.kill(started.keeper, signal.SIGKILL)

            wait_until(lambda: not any(map(_alive, started.pids)), "servers that are gone", 20)


def test_a_shared_server_stays_until_its_last_user_is_killed() -> None:
    """It does not matter who started it: it serves the others of its run, and ends with the last."""
    run = {"PYTEST_XDIST_TESTRUNUID": "shared-until-the-last"}
    with _process(_SHARED, **run) as first, _process(_SHARED, **run) as second, _process(_SHARED) as stranger:
        assert first.url == second.url != stranger.url
        first.kill()
        with servers.redis("valkey"):  # time enough for a keeper that is wrong
            pass
        assert _answers(second.url)

        second.kill()

        wait_until(lambda: not _answers(second.url), "the shared server's end", 20)
        assert _answers(stranger.url)


def _answers(url: str) -> bool:
    try:
        return call(url, "PING") == b"PONG"
    except OSError:
        return False


_TEST = """
import os

def test_it(shared_valkey):
    with open(os.environ["SEEN"], "a") as seen:
        print(shared_valkey.url, os.getpid(), file=seen)
"""


def test_workers_of_one_run_share_a_server(tmp_path: Path) -> None:
    """Under pytest-xdist all workers get the same server, and nothing is left after the run."""
    (tmp_path / "test_it.py").write_text(_TEST)
    seen = tmp_path / "seen"
    plugins = ["-p", "durable_conformance.servers.fixtures", "-p", "xdist", "-p", "no:cacheprovider"]
    options = ["--tx=2*popen", "--dist=each", f"--rootdir={tmp_path}", f"--confcutdir={tmp_path}", str(tmp_path)]
    environ = os.environ | {"SEEN": str(seen), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *options]

    run = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, check=False)

    assert run.returncode == 0, run.stdout.decode()
    urls, workers = zip(*map(str.split, seen.read_text().splitlines()), strict=True)
    assert (len(set(urls)), len(set(workers))) == (1, 2)
    wait_until(lambda: not _answers(urls[0]), "the shared server's end", 20)
