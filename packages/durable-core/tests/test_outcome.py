"""The fold that makes one outcome of the waits that a pass reached. [RUN-RESUME-OUTCOME]"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from durable_core.outcome import Blocked, Sleeping, Wait, folded

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
SOON, LATER = NOW + timedelta(seconds=1), NOW + timedelta(days=1)

DUES = st.none() | st.sampled_from([NOW, SOON, LATER])
WAITS = st.lists(
    st.builds(Wait, st.sampled_from(["value", "message", "time"]), st.text(min_size=1), DUES), unique_by=lambda wait: wait.key
)


def test_waits_without_a_deadline_block() -> None:
    """A workflow that waits for others alone is blocked, and says for what."""
    reached = [Wait("value", "b", None), Wait("message", "c", None), Wait("value", "a", None)]
    assert folded(reached) == Blocked(waiting=("a", "b"), listening=("c",))


def test_the_earliest_deadline_wins() -> None:
    """Case 141: the sleep's key and due, beside the awaited key and the received one."""
    reached = [Wait("value", "approved", LATER), Wait("time", "pause", SOON), Wait("message", "mail", None)]
    assert folded(reached) == Sleeping("pause", SOON, waiting=("approved", "pause"), listening=("mail",))


def test_a_tie_goes_to_the_least_key() -> None:
    """Two deadlines at one instant: the outcome does not depend on which was reached first."""
    assert folded([Wait("time", "b", SOON), Wait("message", "a", SOON)]) == Sleeping("a", SOON, ("b",), ("a",))


def test_a_deadline_of_a_receive_counts() -> None:
    """The timeout of a `receive` wakes the workflow as any other."""
    assert folded([Wait("message", "mail", SOON)]) == Sleeping("mail", SOON, (), ("mail",))


@given(WAITS.flatmap(lambda reached: st.tuples(st.just(reached), st.permutations(reached))))
def test_the_outcome_does_not_depend_on_the_order(orders: tuple[list[Wait], list[Wait]]) -> None:
    """RUN-RESUME-OUTCOME: the same on every pass, in whatever order the waits were reached."""
    one, other = orders
    assert folded(one) == folded(other)


@given(WAITS)
def test_every_wait_is_named_once(reached: list[Wait]) -> None:
    """RUN-RESUME-OUTCOME: all keys, sorted, and the earliest due time of all."""
    outcome = folded(reached)
    named = [*outcome.waiting, *outcome.listening]
    assert sorted(named) == sorted(wait.key for wait in reached)
    assert list(outcome.waiting) == sorted(outcome.waiting)
    assert list(outcome.listening) == sorted(outcome.listening)
    dues = sorted((wait.due, wait.key) for wait in reached if wait.due is not None)
    match outcome:
        case Sleeping(key, due):
            assert (due, key) == dues[0]
        case Blocked():
            assert not dues
