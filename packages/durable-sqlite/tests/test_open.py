"""How a store is opened, shared, closed, and found by its URL."""

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import threading
import weakref
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import durable_sqlite
from durable_core.errors import Misconfigured, SchemaMismatch
from durable_sqlite import SqliteConnection, SqliteDurable, _file
from durable_sqlite._file import file_system, refuse_network

LONG = timedelta(hours=1)


def files(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


@pytest.mark.parametrize("form", ["relative", "absolute", "escaped"])
async def test_open_takes_three_slashes_or_four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Three slashes are relative to where the process is when it opens, four absolute; what is special is percent-encoded."""
    monkeypatch.chdir(tmp_path)
    url, name = {
        "relative": ("sqlite:///shop.db", "shop.db"),
        "absolute": (f"sqlite:///{tmp_path}/abs.db", "abs.db"),
        "escaped": ("sqlite:///a%20shop%3F%23.db", "a shop?#.db"),
    }[form]
    async with durable_sqlite.open(url, queue="q", lease=timedelta(seconds=7), synchronous="NORMAL") as durable:
        monkeypatch.chdir("/")
        assert (await durable.arrive("w", "k", 1)).first
        assert (durable.scheduler.queue, durable.scheduler.lease) == ("q", timedelta(seconds=7))
        assert (await durable.describe()).survives_power_cut == "no"
    assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://host/shop.db",
        "sqlite:///shop.db?mode=ro",
        "postgresql:///shop",
        "shop.db",
    ],
)
async def test_open_refuses_what_names_no_file(url: str) -> None:
    """Memory, hosts, options in the URL and other schemes are refused with what to write instead."""
    with pytest.raises(Misconfigured):
        durable_sqlite.open(url)


@pytest.mark.parametrize("name", ["", ":memory:", "file:shop.db?mode=memory"])
async def test_connection_refuses_what_is_no_path(name: str) -> None:
    """A path is a path; SQLite's other names are refused."""
    with pytest.raises(Misconfigured, match="MemoryDurable"):
        SqliteConnection(name)


async def test_connection_refuses_bad_options(path: Path) -> None:
    """[ANY-VALID] A level that loses commits without a power cut, and durations of zero, are refused at construction."""
    with pytest.raises(Misconfigured, match="OFF"):
        SqliteConnection(path, synchronous="OFF")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    for options in ({"busy_timeout": timedelta(0)}, {"lease": timedelta(0)}, {"queue": ""}):
        with pytest.raises(ValueError):
            SqliteDurable.at(path, **options)  # pyright: ignore[reportArgumentType]


def test_open_is_an_entry_point() -> None:
    """`durable_core.open("sqlite:///…")` finds this distribution by its entry point."""
    (found,) = entry_points(group="durable.stores", name="sqlite")
    assert found.load() is durable_sqlite.open


async def test_nothing_is_opened_before_it_is_asked_for(path: Path) -> None:
    """Building a store makes neither file nor thread; the first call does."""

    def threads() -> int:
        return sum(str(path) in thread.name for thread in threading.enumerate())

    durable = SqliteDurable.at(path)
    assert files(path) == []
    assert threads() == 0
    assert await durable.checkpointer.load("w") == {}
    assert "shop.db" in files(path)
    assert threads() == 1
    await durable.aclose()
    assert threads() == 0


async def test_create_false_only_verifies(path: Path) -> None:
    """With `create=False` neither file nor schema is made; a file that has the schema is taken."""
    durable = SqliteDurable.at(path, create=False)
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        await durable.prepare()
    assert files(path) == []
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()
    with pytest.raises(SchemaMismatch, match="has no schema yet"):
        await durable.prepare()
    async with SqliteDurable.at(path):
        pass
    assert await durable.checkpointer.load("w") == {}
    await durable.aclose()


async def test_close_does_what_was_asked_for_and_no_more(path: Path) -> None:
    """What was called before the close is done, what waits is answered, what comes later is refused by name."""
    async with SqliteDurable.at(path) as durable:
        records = [asyncio.create_task(durable.checkpointer.supply("w", f"k{number}", number)) for number in range(30)]
        waiting = [asyncio.create_task(durable.begin(LONG, LONG)), asyncio.create_task(durable.scheduler.next_ready(LONG))]
        watching = asyncio.create_task(durable.watch("w", LONG))
        await asyncio.sleep(0)
    assert all([(await task).first for task in records])
    assert [await task for task in waiting] == [[], None]
    await watching
    for call in (durable.checkpointer.load("w"), durable.arrive("w", "k", 1), durable.begin(LONG, LONG), durable.scheduler.now()):
        with pytest.raises(Misconfigured, match="closed"):
            await call
    await durable.aclose()
    assert files(path) == ["shop.db", "shop.db-turn"]
    async with SqliteDurable.at(path) as again:
        assert len(await again.checkpointer.load("w")) == 30


async def test_close_of_a_store_that_was_never_used(path: Path) -> None:
    """There is nothing to close, and it is closed."""
    durable = SqliteDurable.at(path)
    await durable.aclose()
    with pytest.raises(Misconfigured, match="closed"):
        await durable.prepare()


def test_three_loops_use_one_store(path: Path) -> None:
    """Case 108: a store that is built at import works in one `asyncio.run` after the other."""
    durable = SqliteDurable.at(path)

    async def use(number: int) -> int:
        await durable.arrive("w", f"k{number}", number)
        return len(await durable.checkpointer.load("w"))

    assert [asyncio.run(use(number)) for number in range(3)] == [1, 2, 3]
    asyncio.run(durable.aclose())


def test_loops_in_several_threads_use_one_store_at_once(path: Path) -> None:
    """Each caller is answered in its own loop, and what they write together is one history."""
    durable = SqliteDurable.at(path)

    async def use(name: str) -> None:
        for number in range(50):
            assert (await durable.checkpointer.supply("w", f"{name}{number}", name)).value == name

    threads = [threading.Thread(target=asyncio.run, args=(use(name),)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def finish() -> int:
        async with durable:
            return len(await durable.checkpointer.load("w"))

    assert asyncio.run(finish()) == 200


def test_a_loop_that_is_gone_leaves_what_it_took(path: Path) -> None:
    """A turn that was begun for a loop that has ended meanwhile is handed back to the next."""
    durable = SqliteDurable.at(path)
    loop = asyncio.new_event_loop()
    beginning = loop.create_task(durable.begin(LONG, LONG))
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(durable.checkpointer.load("nobody"))
    beginning.cancel()
    loop.run_until_complete(asyncio.wait([beginning]))
    loop.close()

    async def use() -> None:
        async with durable:
            await durable.arrive("w", "k", 1)
            (turn,) = await durable.begin(LONG, LONG)
            assert turn.delivery.attempt == 1

    asyncio.run(use())


def test_a_store_that_is_forgotten_ends_its_thread(path: Path) -> None:
    """Nobody closed it: its thread ends with the object, and the file is closed."""

    async def use() -> weakref.ref[SqliteConnection]:
        durable = SqliteDurable.at(path)
        await durable.arrive("w", "k", 1)
        return weakref.ref(durable.checkpointer.connection)

    forgotten = asyncio.run(use())
    (thread,) = (thread for thread in threading.enumerate() if str(path) in thread.name)
    gc.collect()
    assert forgotten() is None
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_is_refused_in_the_child_and_harmless_to_the_parent(path: Path) -> None:
    """A process that forks keeps its store; in the child it is refused by name, and a store that is opened there works."""
    script = """
import asyncio, os, sys
from durable_core.errors import Misconfigured, SchemaMismatch
from durable_sqlite import SqliteDurable
durable = SqliteDurable.at(sys.argv[1])
asyncio.run(durable.arrive("w", "before", 1))
child = os.fork()
if not child:
    for attempt in (durable.arrive("w", "child", 1), durable.scheduler.now(), durable.aclose()):
        try:
            asyncio.run(attempt)
        except Misconfigured as error:
            assert "forked" in str(error), error
    async def afresh():
        async with SqliteDurable.at(sys.argv[1]) as own:
            await own.arrive("w", "own", 1)
    asyncio.run(afresh())
    os._exit(0)
_, status = os.waitpid(child, 0)
asyncio.run(durable.arrive("w", "after", 1))
print(status, list(asyncio.run(durable.checkpointer.load("w"))))
asyncio.run(durable.aclose())
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0 ['before', 'own', 'after']", done.stderr


def test_reprs_say_what_it_is(path: Path) -> None:
    """Each object with state names its file in one line."""
    durable = SqliteDurable.at(path, queue="q")
    for each in (durable, durable.checkpointer, durable.scheduler, durable.checkpointer.connection):
        assert str(path.name) in repr(each)
        assert "\n" not in repr(each)


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:36 / /srv/my\\040share rw,relatime shared:2 - nfs4 server:/export rw
41 22 0:37 / /srv rw - virtiofs tag rw
42 41 0:38 / /srv/local rw - xfs /dev/vdb rw
43 22 0:39 / /srv/local/deep rw master:3 - fuse.sshfs me@there: rw
nonsense
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/home/shop.db", "ext4"),
        ("/srv/my share/shop.db", "nfs4"),
        ("/srv/my shares/shop.db", "virtiofs"),
        ("/srv/local/shop.db", "xfs"),
        ("/srv/local/deep/er/shop.db", "fuse.sshfs"),
        ("/srvx/shop.db", "ext4"),
    ],
)
def test_network_file_systems_are_told_apart(name: str, expected: str) -> None:
    """Case 120: the file's own mount decides, and a network one is refused with the reason."""
    assert file_system(name, MOUNTS) == expected
    if expected in ("ext4", "xfs"):
        refuse_network(name, MOUNTS)
    else:
        with pytest.raises(Misconfigured, match=f"{expected} file system.*local disk"):
            refuse_network(name, MOUNTS)


async def test_network_file_systems_are_refused_when_opening(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 120: the store asks for the mounts by itself, before it makes anything, and works once the file is elsewhere."""
    durable = SqliteDurable.at(path)
    with monkeypatch.context() as patch:
        patch.setattr(_file, "_mounts", lambda: "22 1 0:36 / / rw - nfs4 server:/ rw")
        with pytest.raises(Misconfigured, match="nfs4"):
            await durable.arrive("w", "k", 1)
        assert files(path) == []
    assert (await durable.arrive("w", "k", 1)).first
    await durable.aclose()


def test_network_file_systems_where_nobody_says() -> None:
    """Without a list of mounts nothing is refused."""
    assert file_system("/home/shop.db", "") is None
    refuse_network("/home/shop.db", "")
