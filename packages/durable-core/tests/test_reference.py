"""The pure machine says what each clause means."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from durable_core import reference
from durable_core._reference_records import Record, Records
from durable_core.contract import Delivery, Entry, Failed, Finished, Pass, Recorded, Torn, Turn
from durable_core.keys import MAX_INBOX, OUTCOME, inbox_key
from durable_core.reference import FENCED, State, Wakeup

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=10)
BUDGET = timedelta(seconds=60)


def claimed(state: State, now: datetime = NOW, alive: timedelta = LEASE) -> tuple[State, Pass]:
    state, holder = reference.claim(state, now, BUDGET, alive)
    assert holder is not None
    return state, holder


def taken(state: State, now: datetime = NOW, receipt: str = "r1") -> tuple[State, Delivery]:
    state, delivery = reference.next_ready(state, now, LEASE, receipt)
    assert delivery is not None
    return state, delivery


def begun(state: State, now: datetime = NOW, receipt: str = "r1") -> tuple[State, Turn]:
    state, turn = reference.begin(state, now, LEASE, BUDGET, receipt)
    assert turn is not None
    return state, turn


# ----------------------------------------------------------------------------------------------------------- records


def test_records_grow_without_changing_what_was_read_before() -> None:
    """A view is a value: growing it leaves it as it was. [CKP-LOAD-PREFIX]"""
    none = Records()
    one = none.with_record(Record("a", "1", NOW))
    two = one.with_record(Record("b", "2", NOW))
    assert (dict(none), dict(one), dict(two)) == ({}, {"a": "1"}, {"a": "1", "b": "2"})
    assert "b" not in one
    with pytest.raises(KeyError):
        one["b"]


def test_records_share_what_they_grow_from() -> None:
    """Ten thousand steps of one workflow copy nothing. [CKP-LOAD-PREFIX]"""
    grown, logs = Records(), set[int]()
    for number in range(10_000):
        grown = grown.with_record(Record(f"k{number}", "1", NOW))
        logs.add(id(grown._log))  # pyright: ignore[reportPrivateUsage]
    assert (len(grown), len(logs)) == (10_000, 1)


def test_records_of_two_branches_do_not_see_each_other() -> None:
    """Growing an older view copies, so that two histories may share a beginning."""
    trunk = Records().with_record(Record("a", "1", NOW))
    left, right = trunk.with_record(Record("b", "left", NOW)), trunk.with_record(Record("b", "right", NOW))
    assert (dict(left), dict(right)) == ({"a": "1", "b": "left"}, {"a": "1", "b": "right"})
    assert left != right


def test_records_that_are_equal_hash_equal_however_they_grew() -> None:
    """A search over histories can remember the states it has seen."""
    first, second, third = Record("a", "1", NOW), Record("b", "2", NOW), Record("c", "3", NOW)
    straight = Records().with_record(first).with_record(second)
    fork = Records().with_record(first)
    fork.with_record(third)
    assert {straight: "seen"}[fork.with_record(second)] == "seen"
    assert straight != Records().with_record(second).with_record(first)


def test_state_is_hashable_with_everything_in_it() -> None:
    """States of every kind can be kept in a set."""
    state, turn = begun(reference.arrive(State("w"), NOW, "input", "1")[0])
    torn, _ = reference.tear(state, NOW, turn.holder, "t", "half done")
    assert len({State("w"), state, torn, reference.fail(state, NOW, turn, "why", None)}) == 4


# ------------------------------------------------------------------------------------------------------ checkpointer


def test_record_once_and_first_a_tie_is_a_win() -> None:
    """The first writer wins, and an equal encoding is first too. [CKP-RECORD-ONCE] [CKP-RECORD-FIRST]"""
    state, holder = claimed(State("w"))
    state, answer = reference.record(state, NOW, holder, "k", "1")
    assert answer == Recorded("1", True)
    again, answer = reference.record(state, NOW + SECOND, holder, "k", "1")
    assert answer == Recorded("1", True)
    again, answer = reference.record(again, NOW + SECOND, holder, "k", "2")
    assert answer == Recorded("1", False)
    assert reference.history(again) == reference.history(state)


def test_record_fenced_asks_for_the_last_token_issued_not_for_a_lower_one() -> None:
    """Tokens below and above the last one are refused, and a claim that is gone fences. [CKP-RECORD-FENCED]"""
    state, old = claimed(State("w"))
    state = reference.release(state, old)
    state, holder = claimed(state)
    for stranger in (old, replace(holder, token=holder.token + 1)):
        assert reference.record(state, NOW, stranger, "k", "1") == (state, FENCED)
    gone, _ = reference.discard(state)
    assert reference.record(gone, NOW, holder, "k", "1") == (gone, FENCED)


def test_record_lapsed_may_write_until_somebody_claims() -> None:
    """A lapsed claim that nobody took still writes. [CKP-RECORD-LAPSED]"""
    state, holder = claimed(State("w"))
    late = NOW + 2 * LEASE
    state, answer = reference.record(state, late, holder, "k", "1")
    assert answer == Recorded("1", True)
    state, _ = claimed(state, late + LEASE)
    assert reference.record(state, late + LEASE, holder, "k2", "1")[1] is FENCED


def test_record_live_is_a_sign_of_life_within_the_budget() -> None:
    """A write keeps the claim for another window, and never past the budget. [CKP-RECORD-LIVE] [CKP-CLAIM-LAPSE]"""
    state, holder = claimed(State("w"), alive=timedelta(seconds=40))
    state, _ = reference.record(state, NOW + timedelta(seconds=30), holder, "k", "1")
    assert reference.held_until(state, NOW + timedelta(seconds=45)) == NOW + BUDGET
    assert reference.held_until(state, NOW + BUDGET) is None


def test_release_final_no_write_takes_the_workflow_back() -> None:
    """After the release a write lands until somebody claims, and is no sign of life. [CKP-RELEASE-FINAL] [CKP-RELEASE-FREE]"""
    state, holder = claimed(State("w"))
    state = reference.release(state, holder)
    state, answer = reference.record(state, NOW, holder, "k", "1")
    assert answer == Recorded("1", True)
    assert reference.renew(state, NOW, holder, LEASE) == (state, False)
    assert reference.extend(state, NOW, holder, BUDGET, LEASE) == (state, False)
    state, rival = claimed(state)
    assert reference.release(state, holder) is state
    assert rival.token > holder.token


def test_claim_refused_while_live_and_granted_at_the_instant_it_lapses() -> None:
    """At most one pass is live, and the window ends with its last instant excluded. [CKP-CLAIM-ONE] [CKP-CLAIM-LAPSE]"""
    state, _ = claimed(State("w"))
    assert reference.claim(state, NOW + LEASE - timedelta(microseconds=1), BUDGET, LEASE) == (state, None)
    assert claimed(state, NOW + LEASE)[1].token == 2


def test_claim_rising_refuses_a_token_that_does_not_rise() -> None:
    """Also after a discard, which forgets everything else. [CKP-CLAIM-RISING]"""
    state, _ = claimed(State("w"))
    state, _ = reference.discard(state)
    with pytest.raises(ValueError):
        reference.claim(state, NOW, BUDGET, LEASE, token=1)
    assert claimed(state)[1].token == 2


def test_extend_grants_from_now_and_never_brings_the_end_forward() -> None:
    """A shorter budget leaves the end; a lapsed and spent claim is revived. [CKP-EXTEND-GRANT] [CKP-EXTEND-LAPSED]"""
    state, holder = claimed(State("w"), alive=2 * BUDGET)
    shorter, granted = reference.extend(state, NOW, holder, SECOND, 2 * BUDGET)
    assert granted
    assert reference.held_until(shorter, NOW) == NOW + BUDGET
    revived, granted = reference.extend(state, NOW + 2 * BUDGET, holder, SECOND, LEASE)
    assert granted
    assert reference.held_until(revived, NOW + 2 * BUDGET) == NOW + 2 * BUDGET + SECOND


def test_renew_budget_is_false_once_it_is_spent() -> None:
    """Renewing revives a window and not a budget. [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET]"""
    state, holder = claimed(State("w"))
    revived, held = reference.renew(state, NOW + 2 * LEASE, holder, LEASE)
    assert held
    assert reference.held_until(revived, NOW + 2 * LEASE) == NOW + 3 * LEASE
    assert reference.renew(state, NOW + BUDGET, holder, LEASE) == (state, False)


def test_append_above_every_inbox_key_however_it_came() -> None:
    """A copied entry lifts the numbers that follow. [CKP-APPEND-ABOVE] [CKP-APPEND-SORTED]"""
    state, _ = reference.supply(State("w"), NOW, inbox_key(41), "copied")
    state, entry = reference.append(state, NOW, "m")
    assert entry == Entry(inbox_key(42), "m")
    with pytest.raises(ValueError):
        reference.append(state, NOW, "m", number=42)


def test_append_refuses_clearly_when_there_is_no_number_left() -> None:
    """Above the highest number there is none. [CKP-APPEND-KEY]"""
    state, _ = reference.supply(State("w"), NOW, inbox_key(MAX_INBOX - 1), "copied")
    with pytest.raises(ValueError, match=r"'w'.*9007199254740992"):
        reference.append(state, NOW, "m")


def test_append_once_holds_as_long_as_there_are_records() -> None:
    """A repeat gives the first entry; a discard forgets the sender's ids. [CKP-APPEND-ONCE]"""
    state, entry = reference.append(State("w"), NOW, "m", "id")
    assert reference.append(state, NOW, "other", "id") == (state, entry)
    state, _ = reference.discard(state)
    assert reference.append(state, NOW, "other", "id")[1] == Entry(inbox_key(1), "other")


def test_transact_says_whether_the_effect_counts_also_when_the_encodings_are_equal() -> None:
    """An equal value supplied meanwhile is first: the effect is to be undone. [CKP-TRANSACT-SUPPLIED]"""
    state, holder = claimed(State("w"))
    assert reference.ask(state, holder, "k") is None
    _, answer = reference.transact(state, NOW, holder, "k", "1")
    assert answer == Recorded("1", True)
    state, _ = reference.supply(state, NOW, "k", "1")
    assert reference.transact(state, NOW, holder, "k", "1")[1] == Recorded("1", False)


def test_torn_key_refuses_every_write_and_is_mended_in_its_place() -> None:
    """The mark takes key, position and time. [CKP-TRANSACT-TORN]"""
    state, holder = claimed(State("w"))
    state, _ = reference.tear(state, NOW, holder, "t", "half done")
    state, _ = reference.supply(state, NOW + SECOND, "u", "1")
    torn = Torn("half done")
    assert reference.record(state, NOW, holder, "t", "1") == (state, torn)
    assert reference.supply(state, NOW, "t", "1") == (state, torn)
    assert reference.arrive(state, NOW, "t", "1") == (state, torn)
    assert dict(reference.load(state)) == {"t": torn, "u": "1"}
    mended, was_torn = reference.mend(state, "t", "2")
    assert was_torn
    assert [(key, written.value, written.at) for key, written in reference.history(mended).items()] == [
        ("t", "2", NOW),
        ("u", "1", NOW + SECOND),
    ]
    assert reference.mend(mended, "t", "3") == (mended, False)


def test_load_skip_leaves_out_that_many_from_the_front() -> None:
    """In first-recorded order. [CKP-LOAD-ORDER]"""
    state = State("w")
    for key in "cab":
        state, _ = reference.supply(state, NOW, key, key)
    assert list(reference.load(state)) == ["c", "a", "b"]
    assert list(reference.load(state, 2)) == ["b"]
    assert reference.load(state, 9) == {}


# --------------------------------------------------------------------------------------------------------- scheduler


def test_make_ready_keeps_an_earlier_due_time_and_the_count() -> None:
    """Of a sleeper it makes one that is due now; of a ready one nothing new. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]"""
    sleeping = State("w", wakeup=Wakeup(NOW + LEASE, 3, 1))
    assert reference.make_ready(sleeping, NOW).wakeup == Wakeup(NOW, 3, 1)
    ready = State("w", wakeup=Wakeup(NOW - LEASE, 3, 1))
    assert reference.make_ready(ready, NOW) is ready


def test_make_ready_on_a_taken_one_leaves_the_lease_and_leads_to_another_delivery() -> None:
    """One after a take is another delivery, once the running one is answered. [SCH-READY-COALESCE] [SCH-DONE-NEWER]"""
    state, delivery = taken(reference.make_ready(State("w"), NOW))
    state = reference.make_ready(reference.make_ready(state, NOW + SECOND), NOW + SECOND)
    assert reference.due_at(state) == NOW + LEASE
    state = reference.done(state, NOW + 2 * SECOND, delivery)
    assert state.wakeup == Wakeup(NOW + 2 * SECOND)
    state, second = taken(state, NOW + 2 * SECOND, "r2")
    assert reference.done(state, NOW + 3 * SECOND, second).wakeup is None


def test_buried_is_revived_only_by_asking_for_it() -> None:
    """A wakeup that arrives waits with it; revived it begins with attempt one. [SCH-BURY-KEEPS]"""
    state, delivery = taken(State("w", wakeup=Wakeup(NOW, 4, 2)))
    state = reference.make_ready(reference.bury(state, delivery, "why"), NOW)
    assert (reference.buried(state), reference.due_at(state)) == ("why", None)
    assert reference.next_ready(state, NOW + 10 * LEASE, LEASE, "r2") == (state, None)
    assert reference.make_ready(state, NOW, revive=True).wakeup == Wakeup(NOW)


def test_lapse_adds_one_to_both_counts_under_a_new_receipt() -> None:
    """The old receipt changes nothing any more. [SCH-NEXT-LAPSED] [SCH-DONE-STALE] [SCH-WAKE-STALE] [SCH-RENEW-SILENT]"""
    state, first = taken(reference.make_ready(State("w"), NOW))
    assert reference.next_ready(state, NOW + LEASE - SECOND, LEASE, "r2") == (state, None)
    state, second = taken(state, NOW + LEASE, "r2")
    assert (second.attempt, second.lapses) == (2, 1)
    assert reference.done(state, NOW, first) is state
    assert reference.bury(state, first, "why") is state
    assert reference.wake_at(state, NOW, first, NOW) is state
    assert reference.renew_delivery(state, NOW, first, LEASE) == (state, first)


def test_wake_at_carries_exactly_the_counts_and_a_newer_wakeup_makes_it_due_at_once() -> None:
    """The due time yields, the counts stand. [SCH-WAKE-COUNT] [SCH-WAKE-NEWER] [SCH-WAKE-NOT-BEFORE]"""
    state, delivery = taken(reference.make_ready(State("w"), NOW))
    assert reference.wake_at(state, NOW, delivery, NOW + BUDGET, 7, 3).wakeup == Wakeup(NOW + BUDGET, 7, 3)
    newer = reference.make_ready(state, NOW)
    assert reference.wake_at(newer, NOW + SECOND, delivery, NOW + BUDGET, 7, 3).wakeup == Wakeup(NOW + SECOND, 7, 3)


def test_cancelled_is_reinstated_by_nothing() -> None:
    """[SCH-CANCEL-ALL] [SCH-WAKE-CANCELLED] [SCH-DONE-CANCELLED] [SCH-BURY-CANCELLED]"""
    state, delivery = taken(reference.make_ready(State("w"), NOW))
    state = reference.cancel(reference.make_ready(state, NOW))
    assert reference.wake_at(state, NOW, delivery, NOW).wakeup is None
    assert reference.done(state, NOW, delivery).wakeup is None
    assert reference.bury(state, delivery, "why").wakeup is None
    anew, other = taken(reference.make_ready(state, NOW), receipt="r2")
    assert reference.done(anew, NOW, delivery) is anew
    assert other.receipt == "r2"


def test_renew_delivery_keeps_it_for_another_lease_and_never_shortens() -> None:
    """Also one that lapsed and that nobody took. [SCH-RENEW-NAME] [SCH-NEXT-ONE]"""
    state, delivery = taken(reference.make_ready(State("w"), NOW))
    state, same = reference.renew_delivery(state, NOW + 2 * LEASE, delivery, LEASE)
    assert (same, reference.due_at(state)) == (delivery, NOW + 3 * LEASE)
    state, _ = reference.renew_delivery(state, NOW + 2 * LEASE, delivery, SECOND)
    assert reference.due_at(state) == NOW + 3 * LEASE


# ----------------------------------------------------------------------------------------------------------- durable


def test_begin_leaves_a_contended_workflow_as_it_is() -> None:
    """It comes back when the claim ends, with its counts. [DUR-BEGIN]"""
    state, holder = claimed(reference.make_ready(State("w"), NOW))
    assert reference.begin(state, NOW + SECOND, LEASE, BUDGET, "r1") == (state, None)
    _, turn = begun(reference.release(state, holder), NOW + SECOND)
    assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)


def test_begin_answers_a_finished_workflow_without_a_turn() -> None:
    """Even while its claim is held. [DUR-BEGIN]"""
    state, holder = claimed(reference.make_ready(State("w"), NOW))
    state, _ = reference.record(state, NOW, holder, OUTCOME, "1")
    state, turn = reference.begin(state, NOW, LEASE, BUDGET, "r1")
    assert (turn, state.wakeup) == (None, None)


def test_finish_records_releases_and_answers_and_may_be_repeated() -> None:
    """A wakeup that came meanwhile goes with it. [DUR-FINISH] [DUR-TURN-FENCED]"""
    state, turn = begun(reference.make_ready(State("w"), NOW))
    state, answer = reference.finish(reference.make_ready(state, NOW), NOW, turn, "1")
    assert answer == Recorded("1", True)
    assert (reference.result(state), state.wakeup, reference.held_until(state, NOW)) == (Finished("1"), None, None)
    assert reference.finish(state, NOW, turn, "1")[1] == Recorded("1", True)
    assert reference.finish(state, NOW, turn, "2")[1] == Recorded("1", False)


@pytest.mark.parametrize("end", ["pause", "fail", "hand_back", "discard", "superseded"])
def test_finish_after_another_end_of_the_turn_is_fenced_and_changes_neither_half(end: str) -> None:
    """[DUR-TURN-FENCED]"""
    state, turn = begun(reference.make_ready(State("w"), NOW))
    ended = {
        "pause": lambda: reference.pause(state, NOW, turn, None),
        "fail": lambda: reference.fail(state, NOW, turn, "why", SECOND),
        "hand_back": lambda: reference.hand_back(state, NOW, turn, timedelta(0)),
        "discard": lambda: reference.discard(state)[0],
        "superseded": lambda: claimed(state, NOW + LEASE)[0],
    }[end]()
    assert reference.finish(ended, NOW + LEASE, turn, "1") == (ended, FENCED)


def test_other_ends_by_a_superseded_pass_answer_only_while_the_receipt_is_current() -> None:
    """They release nothing. [DUR-TURN-FENCED]"""
    state, turn = begun(reference.make_ready(State("w"), NOW))
    state, rival = claimed(state, NOW + LEASE)
    paused = reference.pause(state, NOW + LEASE, turn, None)
    assert paused.wakeup is None
    assert reference.ask(paused, rival, "k") is None
    assert reference.held_until(paused, NOW + LEASE) is not None
    retaken, _ = taken(state, NOW + LEASE, "r2")
    assert reference.fail(retaken, NOW + LEASE, turn, "why", None) is retaken


def test_fail_and_hand_back_say_how_often() -> None:
    """[DUR-FAIL] [DUR-HAND-BACK] [DUR-PAUSE]"""
    state, turn = begun(State("w", wakeup=Wakeup(NOW, 3, 2)))
    assert reference.fail(state, NOW, turn, "why", SECOND).wakeup == Wakeup(NOW + SECOND, 4, 0)
    assert reference.hand_back(state, NOW, turn, timedelta(0)).wakeup == Wakeup(NOW, 3, 2)
    assert reference.pause(state, NOW, turn, NOW + BUDGET).wakeup == Wakeup(NOW + BUDGET, 1, 0)
    assert reference.result(reference.fail(state, NOW, turn, "why", None)) == Failed("why")


def test_renew_turn_leaves_the_delivery_alone_when_the_claim_is_lost() -> None:
    """[DUR-KEEP]"""
    state, turn = begun(reference.make_ready(State("w"), NOW))
    kept, same = reference.renew_turn(state, NOW + SECOND, turn, LEASE)
    assert same == turn
    assert reference.due_at(kept) == reference.held_until(kept, NOW + SECOND) == NOW + SECOND + LEASE
    lost = reference.release(state, turn.holder)
    assert reference.renew_turn(lost, NOW + SECOND, turn, LEASE) == (lost, None)


# ----------------------------------------------------------------------------------------------------------- catalog


def test_listed_shows_the_first_state_that_applies() -> None:
    """[CAT-LIST]"""
    assert reference.listed(State("w"), NOW) is None
    ready = reference.arrive(State("w"), NOW, "input", "1")[0]
    running, turn = begun(ready)
    states = {
        "ready": ready,
        "running": running,
        "sleeping": reference.pause(running, NOW, turn, NOW + SECOND),
        "blocked": reference.pause(running, NOW, turn, None),
        "buried": reference.fail(running, NOW, turn, "why", None),
        "finished": reference.finish(running, NOW, turn, "1")[0],
    }
    for expected, state in states.items():
        listed = reference.listed(state, NOW)
        assert listed is not None
        assert listed.state == expected


def test_sweep_takes_only_what_finished_before_and_nobody_wants() -> None:
    """[CAT-SWEEP]"""
    state, turn = begun(reference.arrive(State("w"), NOW, "input", "1")[0])
    finished, _ = reference.finish(state, NOW, turn, "1")
    later = NOW + SECOND
    assert reference.sweep(finished, later, NOW) == (finished, False)
    assert reference.sweep(reference.make_ready(finished, NOW), later, later)[1] is False
    assert reference.sweep(claimed(finished)[0], later, later)[1] is False
    assert reference.sweep(state, later, later) == (state, False)
    assert reference.sweep(finished, later, later)[0] == State("w", reference.Ledger(issued=1))
