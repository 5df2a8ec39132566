"""Each clause of the engine is held by tests that fail when the engine breaks it: on the naive engine, and on near misses."""

import __future__

import asyncio
import gc
import importlib
import importlib.util
import inspect
import itertools
import sys
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NotRequired, TypedDict

import pytest
from _pytest.capture import CaptureManager

from durable_core.memory import MemoryCheckpointer, MemoryDurable
from durable_core.resume import is_group
from durable_core.testing import ManualClock
from probe import probing

HERE = Path(__file__).parent
TESTS = [
    *("test_step*", "test_wait*", "test_settle*", "test_closed*", "test_resume*", "test_thread*", "test_pulse*"),
    *("test_worker*", "test_graph*", "test_client*", "test_testing*"),
]
GIVEN: dict[str, Callable[[], object]] = {
    "store": MemoryCheckpointer,
    "durable": lambda: MemoryDurable(clock=ManualClock()),
    "caplog": object,  # see `emptied`
}
PATIENCE = 30.0  # seconds after which a test hangs
SHORT = 1.5  # and on an engine that is broken anyway

Trial = Callable[..., object]


@dataclass(frozen=True)
class Edit:
    """A text to replace in a function, or a name to set."""

    where: str
    new: str
    old: str | None = None
    dedent: bool = False
    all: bool = False


@dataclass(frozen=True)
class Mutant:
    """A wrong engine."""

    clause: str
    name: str
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        return f"{self.clause.removeprefix('RUN-')}: {self.name}"


class EditTable(TypedDict):
    """An edit as the file has it."""

    where: str
    new: str
    old: NotRequired[str]
    dedent: NotRequired[bool]
    all: NotRequired[bool]


class Table(EditTable):
    """A mutant as the file has it."""

    clause: str
    name: str
    also: NotRequired[list[EditTable]]


def edit(table: EditTable) -> Edit:
    return Edit(table["where"], table["new"], table.get("old"), table.get("dedent", False), table.get("all", False))


def mutants() -> list[Mutant]:
    with (HERE / "engine_mutants.toml").open("rb") as file:
        tables: list[Table] = tomllib.load(file)["mutant"]
    return [Mutant(table["clause"], table["name"], (edit(table), *map(edit, table.get("also", [])))) for table in tables]


# ------------------------------------------------------------------------------------------------- how a mutant is made


@contextmanager
def applied(mutant: Mutant) -> Generator[None]:
    """Put the mutant in the engine's place."""
    with ExitStack() as undo:
        for change in mutant.edits:
            undo.enter_context(replaced(change) if change.old is not None else assigned(change))
        yield


@contextmanager
def assigned(change: Edit) -> Generator[None]:
    owner, name = owner_of(change.where)
    module = importlib.import_module(change.where.partition(":")[0])
    missing = object()
    before: object = getattr(owner, name, missing)
    setattr(owner, name, eval(change.new, {**vars(module), "awaited": awaited}))
    yield
    if before is missing:
        delattr(owner, name)
    else:
        setattr(owner, name, before)


@contextmanager
def replaced(change: Edit) -> Generator[None]:
    function = function_at(change.where)
    before = function.__code__
    function.__code__ = recompiled(function, before, change)
    yield
    function.__code__ = before


def recompiled(function: FunctionType, code: CodeType, change: Edit) -> CodeType:
    """Give the function's code with the change; a second change to one function is made to the first one's text."""
    source = SOURCES.get(code) or textwrap.dedent(inspect.getsource(function))
    assert change.old is not None
    times = source.count(change.old)
    assert times >= 1 if change.all else times == 1, f"{change.where} has {change.old!r} {times} times"
    new = indented(change.new, change.old) if change.dedent else change.new
    source = source.replace(change.old, new)
    namespace = dict(vars(importlib.import_module(change.where.partition(":")[0])))
    flags = __future__.annotations.compiler_flag
    exec(compile(source, f"<{change.where}>", "exec", flags, dont_inherit=True), namespace)
    made = namespace[function.__name__]
    made = made.fget if isinstance(made, property) else made
    assert isinstance(made, FunctionType)
    SOURCES[made.__code__] = source
    return made.__code__


SOURCES: dict[CodeType, str] = {}


def indented(new: str, old: str) -> str:
    """Indent a block as the text that it replaces."""
    margin = old[: len(old) - len(old.lstrip())]
    return textwrap.indent(textwrap.dedent(new).strip("\n"), margin)


def owner_of(where: str) -> tuple[object, str]:
    module, _, path = where.partition(":")
    *outer, name = path.split(".")
    owner: object = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    return owner, name


def function_at(where: str) -> FunctionType:
    owner, name = owner_of(where)
    found = inspect.getattr_static(owner, name)
    found = found.fget if isinstance(found, property) else found
    assert isinstance(found, FunctionType), where
    return found


async def awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


# --------------------------------------------------------------------------------------------------- how a clause is run


@cache
def trials() -> Mapping[str, list[tuple[str, Trial]]]:
    """Give the tests of each clause, one for each set of parameters: those whose docstring begins with its name."""
    found: defaultdict[str, list[tuple[str, Trial]]] = defaultdict(list)
    for path in sorted(path for pattern in TESTS for path in HERE.glob(f"{pattern}.py")):
        for function in vars(loaded(path)).values():
            if inspect.isfunction(function) and function.__name__.startswith("test_"):
                for clause in (function.__doc__ or "").partition(":")[0].split(", "):
                    found[clause] += [(function.__name__, trial) for trial in parametrized(function)]
    return found


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"trial_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def parametrized(function: Trial) -> Iterator[Trial]:
    """Give a trial for each set of parameters; none for a test that wants more of pytest than is given here."""
    marks: list[pytest.Mark] = getattr(function, "pytestmark", [])
    if any(mark.name == "slow" or (mark.name == "skipif" and mark.args[0]) for mark in marks):
        return
    property_of = getattr(function, "hypothesis", None)
    if property_of is not None and inspect.iscoroutinefunction(property_of.inner_test):
        return
    wanted = inspect.signature(function).parameters.keys() - {"probe"}
    axes = [list(axis(mark)) for mark in marks if mark.name == "parametrize"]
    for combination in itertools.product(*axes):
        arguments: dict[str, object] = {}
        for part in combination:
            arguments.update(part)
        given = wanted & GIVEN.keys() - arguments.keys()
        if wanted <= arguments.keys() | given:
            yield partial(run, function, arguments, given)


def axis(mark: pytest.Mark) -> Iterator[dict[str, object]]:
    names, values = mark.args[0], mark.args[1]
    for value in values:
        yield {names: value} if isinstance(names, str) else dict(zip(names, value, strict=True))


def run(function: Trial, chosen: Mapping[str, object], given: Collection[str], patience: float) -> None:
    """Run a test as pytest would, but no longer than is reasonable."""
    arguments = {**chosen, **{name: GIVEN[name]() for name in given}}
    if not inspect.iscoroutinefunction(function):
        function(**arguments)
        return
    loop = asyncio.new_event_loop()
    hung = True
    try:
        task = loop.create_task(probed(function, arguments))
        task.add_done_callback(lambda _: loop.stop())
        loop.call_later(patience, loop.stop)
        loop.run_forever()  # without a task of ours, since some tests count them
        hung = not task.done()
        if hung:
            raise TimeoutError(f"{function} hangs")
        task.result()
    finally:
        close(loop, hung)


async def probed(function: Callable[..., Awaitable[None]], arguments: dict[str, object]) -> None:
    async with probing() as probe:
        wanted = {"probe": probe} if "probe" in inspect.signature(function).parameters else {}
        await function(**wanted, **arguments)


def close(loop: asyncio.AbstractEventLoop, hung: bool) -> None:
    """End what a broken engine may have left; what does not end is abandoned."""
    loop.set_exception_handler(lambda loop, context: None)
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        try:
            loop.run_until_complete(asyncio.wait(left, timeout=0.1))
        except BaseException:
            pass  # the engine is broken
    loop.close()


@dataclass
class Tally:
    """How many mutants were killed."""

    killed: int = 0
    total: int = 0


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Generator[Tally]:
    counts = Tally()
    yield counts
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if isinstance(capture, CaptureManager) else nullcontext():
        print(f"\nengine mutants killed: {counts.killed}/{counts.total}")


MUTANTS = mutants()


@pytest.fixture(autouse=True)
def emptied(caplog: pytest.LogCaptureFixture) -> None:
    """Give every trial the log as it is when nothing has been said."""

    def cleared() -> pytest.LogCaptureFixture:
        caplog.clear()
        return caplog

    GIVEN["caplog"] = cleared


@pytest.mark.parametrize("clause", sorted({mutant.clause for mutant in MUTANTS}))
def test_clause_holds_on_the_engine_as_it_is(clause: str) -> None:
    """The tests of a clause pass here when nothing is broken, so that what makes them fail below is the mutant."""
    assert trials()[clause], "no test names this clause"
    for name, trial in trials()[clause]:
        try:
            trial(PATIENCE)
        except BaseException as error:
            raise AssertionError(f"{name} fails") from error


@pytest.fixture
def swept() -> Generator[None]:
    """What a broken engine left goes here, where its complaints are ignored, and not during some later test."""
    yield
    gc.collect()


@pytest.mark.usefixtures("swept")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_clause_notices(mutant: Mutant, tally: Tally) -> None:
    """Some test of the clause fails on an engine that breaks it."""
    tally.total += 1
    with applied(mutant):
        for _, trial in trials()[mutant.clause]:
            try:
                trial(SHORT)
            except BaseException as error:
                check_made_well(error)
                tally.killed += 1
                return
    pytest.fail("no test of the clause noticed")


def check_made_well(error: BaseException) -> None:
    """A mutant that cannot even run proves nothing."""
    assert not any(isinstance(cause, NameError | SyntaxError) for cause in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Give an exception and what led to it."""
    found, left = set[int](), list[BaseException]([error])
    while left:
        each = left.pop()
        if id(each) in found:
            continue
        found.add(id(each))
        yield each
        left += [other for other in (each.__cause__, each.__context__) if other is not None]
        if is_group(each):
            left += each.exceptions
