"""Whether a recorded history of concurrent calls is one that some order of the calls explains, by the reference machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from durable_conformance.expect import mapping
from durable_core import reference
from durable_core.contract import Delivery, Entry, Pass, Recorded
from durable_core.reference import FENCED, State

EPOCH: Final = datetime(2024, 1, 1, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
NEVER: Final = 10**9


class Unknown:
    """The answer of a call that did not come back: it may have been carried out, or not, or later."""

    def __repr__(self) -> str:
        return "no answer"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True, slots=True)
class Call:
    """One call: who made it, what it asked, when it began and ended (in the order of all such moments), and what came of it."""

    client: str
    method: str
    arguments: tuple[object, ...]
    began: int
    ended: int
    answer: object

    def __str__(self) -> str:
        asked = ", ".join(repr(one.token) if isinstance(one, Pass) else repr(one) for one in self.arguments)
        span = f"{self.began:4}-{'…' if self.ended == NEVER else self.ended:<4}"
        return f"{span} {self.client:12} {self.method}({asked}) -> {_shown(self.answer)}"


def _shown(answer: object) -> str:
    if isinstance(answer, Pass):
        return f"token {answer.token}"
    if isinstance(answer, Recorded):
        return f"{answer.value!r}, first={answer.first}"
    if isinstance(answer, Delivery):
        return f"{answer.receipt!r}, attempt {answer.attempt}, lapses {answer.lapses}"
    return "fenced" if answer is FENCED else repr(answer)


Step = Callable[[State, Call], State | None]


def after(state: State, call: Call) -> State | None:
    """Give the state after a call that answered so, or `None` when the reference machine answers otherwise."""
    if call.answer is UNKNOWN:
        return _unanswered(state, call)
    try:
        return _STEPS[call.method](state, call)
    except ValueError:  # the store chose a token or a number that does not rise
        return None


def _unanswered(state: State, call: Call) -> State:
    match call.method, call.arguments:
        case "record", (Pass() as holder, str(key), value):
            return reference.record(state, EPOCH, holder, key, value)[0]
        case "supply", (str(key), value):
            return reference.supply(state, EPOCH, key, value)[0]
        case "discard", ():
            return reference.discard(state)[0]
        case "release", (Pass() as holder,):
            return reference.release(state, holder)
        case _:
            return state


def _claim(state: State, call: Call) -> State | None:
    token = call.answer.token if isinstance(call.answer, Pass) else None
    state, holder = reference.claim(state, EPOCH, HOUR, HOUR, token)
    return state if (holder is None) == (call.answer is None) else None


def _record(state: State, call: Call) -> State | None:
    holder, key, value = call.arguments
    assert isinstance(holder, Pass)
    assert isinstance(key, str)
    state, answer = reference.record(state, EPOCH, holder, key, value)
    return state if answer == call.answer else None


def _supply(state: State, call: Call) -> State | None:
    key, value = call.arguments
    assert isinstance(key, str)
    state, answer = reference.supply(state, EPOCH, key, value)
    return state if answer == call.answer else None


def _append(state: State, call: Call) -> State | None:
    given = call.answer
    assert isinstance(given, Entry)
    key: str = given.key
    value, once = call.arguments
    assert once is None or isinstance(once, str)
    state, answer = reference.append(state, EPOCH, value, once, int(key[6:]))
    return state if answer == call.answer else None


def _renew(state: State, call: Call) -> State | None:
    (holder,) = call.arguments
    assert isinstance(holder, Pass)
    state, answer = reference.renew(state, EPOCH, holder, HOUR)
    return state if answer is call.answer else None


def _release(state: State, call: Call) -> State | None:
    (holder,) = call.arguments
    assert isinstance(holder, Pass)
    return reference.release(state, holder)


def _discard(state: State, call: Call) -> State | None:
    state, count = reference.discard(state)
    return state if count == call.answer else None


def _load(state: State, call: Call) -> State | None:
    loaded = list(reference.load(state).items())
    return state if loaded == list(mapping(call.answer).items()) else None


def _make_ready(state: State, call: Call) -> State | None:
    return reference.make_ready(state, EPOCH)


def _next_ready(state: State, call: Call) -> State | None:
    receipt = call.answer.receipt if isinstance(call.answer, Delivery) else "none"
    state, delivery = reference.next_ready(state, EPOCH, HOUR, receipt)
    if delivery is None or not isinstance(call.answer, Delivery):
        return state if delivery is call.answer else None
    return state if delivery == replace(call.answer, workflow=delivery.workflow, due=delivery.due) else None


def _done(state: State, call: Call) -> State | None:
    (delivery,) = call.arguments
    assert isinstance(delivery, Delivery)
    return reference.done(state, EPOCH, delivery)


def _wake(state: State, call: Call) -> State | None:
    (delivery,) = call.arguments
    assert isinstance(delivery, Delivery)
    return reference.wake_at(state, EPOCH, delivery, EPOCH - HOUR, delivery.attempt + 1, delivery.lapses)


def _cancel(state: State, call: Call) -> State | None:
    return reference.cancel(state)


_STEPS: Final[dict[str, Step]] = {
    "claim": _claim,
    "record": _record,
    "supply": _supply,
    "append": _append,
    "renew": _renew,
    "release": _release,
    "discard": _discard,
    "load": _load,
    "make_ready": _make_ready,
    "next_ready": _next_ready,
    "done": _done,
    "wake_at": _wake,
    "cancel": _cancel,
}


def explained(calls: Sequence[Call]) -> bool:
    """Say whether some order of the calls, in which none that had ended stands after one that then began, gives all their
    answers.

    Wing and Gong's search: take any call that began before every other one left had ended, and see whether the rest can follow;
    what was seen not to work from a state, with the same calls left, is not tried again.
    """
    calls = sorted(calls, key=lambda call: call.began)
    everything = (1 << len(calls)) - 1
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(everything, State("w"))]
    while stack:
        left, state = stack.pop()
        if (left, state) in seen:
            continue
        seen.add((left, state))
        waiting = [place for place in range(len(calls)) if left >> place & 1]
        if all(calls[place].answer is UNKNOWN for place in waiting):
            return True
        first = min(calls[place].ended for place in waiting)
        for place in waiting:
            if calls[place].began > first:
                break
            following = after(state, calls[place])
            if following is not None:
                stack.append((left & ~(1 << place), following))
    return False


def until(calls: Iterable[Call], moment: int) -> list[Call]:
    """Give the history as it was at a moment: what had not ended had no answer."""
    begun = (call for call in calls if call.began <= moment)
    return [call if call.ended <= moment else replace(call, ended=NEVER, answer=UNKNOWN) for call in begun]


def shortest(calls: Sequence[Call]) -> list[Call]:
    """Give the shortest beginning of a history that nothing explains which nothing explains either."""
    for moment in sorted(call.ended for call in calls):
        beginning = until(calls, moment)
        if not explained(beginning):
            return [
                call for call in beginning if call.answer is not UNKNOWN or call.method not in ("load", "renew", "next_ready")
            ]
    return list(calls)
