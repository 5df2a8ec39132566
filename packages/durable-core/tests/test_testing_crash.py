"""`crash_everywhere`: what it lets pass, what it finds, and how it says so."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from durable_core import OutcomeUnknown, Run, StepFailed, in_thread, list_of, nothing
from durable_core.errors import GiveUp
from durable_core.memory import MemoryEffect
from durable_core.testing import Messages, Survived, crash_everywhere

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)

Body = Callable[[Run[MemoryEffect]], Awaitable[object]]


async def give(value: str) -> str:
    return value


async def slowly(value: str) -> str:
    await asyncio.sleep(0.02)
    return value


class Declined(Exception):
    """The card was declined."""


async def decline() -> str:
    raise Declined("no money")


# What survives


async def saga(run: Run[MemoryEffect]) -> str:
    """Everything a body can use, rightly."""
    order = await run.input(str)

    def reserve(data: dict[str, object]) -> object:
        data["reserved"] = order
        return 1

    await run.step("quoted", give, str, "5 euros")
    await run.transact("reserved", reserve, int)
    if (await run.now("noted")).year < 2024:
        return "too early"
    await run.sleep("cooled", DAY)
    if not await run.awaiting("approved", bool, timeout=2 * DAY, default=False):
        return "refused"
    said = [entry.value for entry in await run.receive("read", str, after=None)]
    try:
        await run.step("charged", decline, str, failures=(Declined,))
    except StepFailed as failed:
        await run.step("released", give, str, "released")
        return f"{failed.message} {said}"
    return "charged"


async def test_a_body_that_keeps_to_its_run_survives() -> None:
    """RUN-SETTLE: it gives the value, the keys in order, and how often it was crashed."""
    survived = await crash_everywhere(saga, {"approved": True, "read": Messages("a", "b")}, value="piano")
    assert survived.value == "no money ['a', 'b']"
    assert survived.keys[:6] == ("input", "quoted", "reserved", "noted", "cooled", "until:approved")
    assert survived.keys[-2:] == ("failed:charged", "released")
    assert survived.crashes == len(survived.keys) - 1  # the two messages came at once


async def test_an_unanswered_timeout_takes_its_default() -> None:
    """The clock jumps to the deadline."""
    assert (await crash_everywhere(saga, value="piano")).value == "refused"


async def test_branches_survive_in_any_order() -> None:
    """Results belong to names."""

    async def one(run: Run[MemoryEffect], number: int) -> str:
        await run.step(f"first {number}", slowly, str, "a")
        return await run.step(f"second {number}", slowly, str, "b") + str(number)

    async def body(run: Run[MemoryEffect]) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(run, number)) for number in range(3)]
        return [task.result() for task in tasks]

    assert (await crash_everywhere(body)).value == ["b0", "b1", "b2"]


async def test_effects_that_give_something_else_each_time_survive() -> None:
    """What a step gives is recorded: it may be by chance."""

    async def body(run: Run[MemoryEffect]) -> str:
        first = await run.step("id", draw, str)
        second = await run.step("id 2", draw, str)
        return first + second

    async def draw() -> str:
        return str(uuid.uuid4())

    assert (await crash_everywhere(body)).crashes == 3


async def test_a_retry_helper_around_a_step_survives() -> None:
    """STEP-NAME: a failure that is tried again in the same pass, and by which nothing is decided."""
    calls = 0

    async def flaky() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ConnectionError
        return "through"

    async def body(run: Run[MemoryEffect]) -> str:
        await run.step("before", give, str, "x")
        while True:
            with contextlib.suppress(ConnectionError):
                return await run.step("call", flaky, str)

    assert (await crash_everywhere(body)).value == "through"
    assert calls == 3


async def test_a_recorded_choice_makes_a_race_survive() -> None:
    """What the docs say to write instead."""

    async def body(run: Run[MemoryEffect]) -> str:
        quick = asyncio.create_task(run.step("quick", give, str, "quick"))
        slow = asyncio.create_task(run.step("slow", slowly, str, "slow"))
        done, _ = await asyncio.wait((quick, slow), return_when=asyncio.FIRST_COMPLETED)
        choice = await run.step("choice", give, str, "quick" if quick in done else "slow")
        await asyncio.wait((quick, slow))
        return choice

    assert (await crash_everywhere(body)).value == "quick"


async def test_at_most_once_steps_and_threads_survive() -> None:
    """A crash between the beginning and the end of one is left out: it is unknown then, and rightly so."""

    def block() -> str:
        time.sleep(0.001)
        return "blocked"

    async def body(run: Run[MemoryEffect]) -> list[str]:
        return [
            await run.step("once", give, str, "once", at_most_once=True),
            await run.step("blocked", in_thread(block), str),
        ]

    survived = await crash_everywhere(body)
    assert survived == Survived(["once", "blocked"], ("input", "start:once", "once", "blocked"), 3)


async def test_a_body_that_ends_by_raising_raises_here_too() -> None:
    """After every crash it was the same exception."""

    async def body(run: Run[MemoryEffect]) -> None:
        await run.step("one", give, str, "x")
        raise GiveUp("enough")

    with pytest.raises(GiveUp, match="enough"):
        await crash_everywhere(body)


async def test_a_workflow_that_waits_for_what_nobody_answers_is_told() -> None:
    """With the key."""

    async def body(run: Run[MemoryEffect]) -> str:
        return await run.awaiting("approved", str)

    with pytest.raises(AssertionError, match="'approved'"):
        await crash_everywhere(body)


async def test_it_leaves_clock_and_chance_as_they_were() -> None:
    """Whatever it shifted is put back."""
    state, clock, before = random.getstate(), time.time, datetime
    await crash_everywhere(saga, {"approved": True, "read": Messages("a")}, value="piano")
    assert random.getstate() == state
    assert time.time is clock
    assert datetime is before


# What does not

charged: list[str] = []


async def charge(what: str) -> str:
    charged.append(what)
    return "receipt"


async def a_direct_effect(run: Run[MemoryEffect]) -> str:
    receipt = await charge("piano")
    await run.step("sent", give, str, "sent")
    return receipt


class Bank:
    """A fake with a state of its own."""

    def __init__(self) -> None:
        self.balance = 100

    def pay(self) -> None:
        self.balance -= 10


bank = Bank()


async def a_direct_effect_on_an_object(run: Run[MemoryEffect]) -> str:
    await run.step("sent", give, str, "sent")
    bank.pay()
    return "paid"


async def a_direct_effect_with_a_result(run: Run[MemoryEffect]) -> str:
    order = str(uuid.uuid4())
    await run.step("sent", give, str, "sent")
    return order


async def a_wall_clock(run: Run[MemoryEffect]) -> str:
    began = datetime.now(UTC)
    await run.step("sent", give, str, "sent")
    return began.isoformat()


async def a_wall_clock_that_decides(run: Run[MemoryEffect]) -> str:
    await run.step("looked", give, str, "x")
    return "spring" if dt.datetime.now(UTC) < DEADLINE else "autumn"


DEADLINE = datetime.now(UTC) + timedelta(days=100)


async def seconds_that_decide(run: Run[MemoryEffect]) -> str:
    began = time.time()
    await run.sleep("a day", DAY)
    return "soon" if began < DEADLINE.timestamp() else "late"


async def chance_that_decides(run: Run[MemoryEffect]) -> str:
    await run.step("before", give, str, "x")
    if random.random() < 0.5:
        await run.step("heads", give, str, "heads")
    else:
        await run.step("tails", give, str, "tails")
    return "thrown"


async def chance_that_orders(run: Run[MemoryEffect]) -> str:
    for name in random.sample(("one", "two"), 2):
        await run.step(name, give, str, name)
    return "both"


async def an_unrecorded_except(run: Run[MemoryEffect]) -> str:
    try:
        await run.step("charged", decline, str)
    except Declined:
        await run.step("released", give, str, "released")
        return "declined"
    await run.step("shipped", give, str, "shipped")
    return "shipped"


async def an_unrecorded_except_and_a_wait(run: Run[MemoryEffect]) -> str:
    try:
        await run.step("charged", decline, str)
    except Declined:
        await run.step("released", give, str, "released")
        await run.sleep("cooled", DAY)
    return "done"


async def a_race_of_two_steps(run: Run[MemoryEffect]) -> str:
    quick = asyncio.create_task(run.step("quick", give, str, "quick"))
    slow = asyncio.create_task(run.step("slow", slowly, str, "slow"))
    done, pending = await asyncio.wait((slow, quick), return_when=asyncio.FIRST_COMPLETED)
    for loser in pending:
        loser.cancel()
    return "slow" if slow in done else "quick"


async def a_race_that_keeps_the_loser(run: Run[MemoryEffect]) -> str:
    quick = asyncio.create_task(run.step("quick", give, str, "quick"))
    slow = asyncio.create_task(run.step("slow", slowly, str, "slow"))
    done, _ = await asyncio.wait((slow, quick), return_when=asyncio.FIRST_COMPLETED)
    return "slow" if slow in done else "quick"


async def a_race_with_an_answer(run: Run[MemoryEffect]) -> str:
    quote = asyncio.create_task(run.step("quote", slowly, str, "5 euros"))
    cancel = asyncio.create_task(run.awaiting("cancelled", str))
    done, pending = await asyncio.wait((quote, cancel), return_when=asyncio.FIRST_COMPLETED)
    for loser in pending:
        loser.cancel()
    return "cancelled" if cancel in done else "quoted"


async def a_step_on_every_other_pass(run: Run[MemoryEffect]) -> str:
    seen.append("pass")
    if len(seen) % 2:
        await run.step("odd", give, str, "odd")
    await run.sleep("nap", SECOND)
    return "done"


seen: list[str] = []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (a_direct_effect, "charged"),
        (a_direct_effect_on_an_object, "bank.balance"),
        (a_direct_effect_with_a_result, "ended with"),
        (a_wall_clock, "ended with"),
        (a_wall_clock_that_decides, "'autumn'"),
        (seconds_that_decide, "'late'"),
        (chance_that_decides, "without the crash"),
        (chance_that_orders, "its record 2 was"),
        (an_unrecorded_except, "'charged'"),
        (an_unrecorded_except_and_a_wait, "'charged'"),
        (a_race_of_two_steps, "'slow'"),
        (a_race_that_keeps_the_loser, "'slow'"),
        (a_race_with_an_answer, "'cancelled'"),
        (a_step_on_every_other_pass, "seen"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_it_finds_what_no_type_checker_can_see(body: Body, said: str) -> None:
    """RUN-SETTLE: with the crash at which it shows."""
    with pytest.raises(AssertionError) as found:
        await crash_everywhere(body, {"cancelled": "yes"})
    assert said in str(found.value)
    assert "workflow/1" in str(found.value)


async def test_it_finds_a_direct_effect_in_a_closure() -> None:
    """Numbers and lists of the enclosing function count."""
    sent = 0

    async def send() -> None:
        nonlocal sent
        sent += 1

    async def body(run: Run[MemoryEffect]) -> None:
        await run.step("one", give, str, "x")
        await send()

    with pytest.raises(AssertionError, match="changed sent"):
        await crash_everywhere(body)


async def test_what_a_body_may_change_is_said() -> None:
    """`ignore` takes objects."""
    trace: list[str] = []

    async def body(run: Run[MemoryEffect]) -> str:
        trace.append("pass")
        return await run.step("one", give, str, "x")

    with pytest.raises(AssertionError, match="trace"):
        await crash_everywhere(body)
    assert (await crash_everywhere(body, ignore=[trace])).value == "x"


async def test_effects_run_in_the_first_life_only() -> None:
    """Fakes that count are as they were after one life."""
    calls: list[str] = []

    async def effect(name: str) -> str:
        calls.append(name)
        return name

    async def body(run: Run[MemoryEffect]) -> list[str]:
        names = [await run.step(name, effect, str, name) for name in ("a", "b", "c")]
        await run.step("listed", effect, str, "d")
        return names

    assert (await crash_everywhere(body)).value == ["a", "b", "c"]
    assert calls == ["a", "b", "c", "d"]


async def test_the_message_says_where_and_what() -> None:
    """One line a crash, and not too many."""
    with pytest.raises(AssertionError) as found:
        await crash_everywhere(a_wall_clock_that_decides)
    lines = str(found.value).splitlines()
    assert lines[0] == "'workflow/1' does not survive every crash:"
    assert lines[1] == (
        "- crashed just after 'input' (record 1 of 2) it ended with 'autumn', and with 'spring' without the crash"
    )
    assert len(lines) < 12


async def test_an_outcome_that_is_unknown_is_not_held_against_the_body() -> None:
    """The body may go by it: the start is a record."""

    async def body(run: Run[MemoryEffect]) -> str:
        try:
            await run.step("once", decline, str, at_most_once=True)
        except OutcomeUnknown:
            await run.step("asked", give, str, "asked")
        return "done"

    assert (await crash_everywhere(body)).value == "done"


async def test_lists_come_back_as_lists_of_what_was_sent() -> None:
    """Values cross the codec on the way, as in every store."""

    async def pair() -> tuple[int, int]:
        return 1, 2

    async def body(run: Run[MemoryEffect]) -> list[int]:
        await run.step("nothing", nap, nothing)
        return await run.step("pair", pair, list_of(int))

    async def nap() -> None:
        await asyncio.sleep(0)

    assert (await crash_everywhere(body)).value == [1, 2]
