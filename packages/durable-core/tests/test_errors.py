"""What the errors say, and which tree each belongs to. [RUN-SUSPEND-BASE]"""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime

import pytest

from durable_core import errors

WORKFLOW, KEY = "shop/1", "charged"
DUE = datetime(2024, 5, 1, 12, tzinfo=UTC)

INTERRUPTIONS: list[BaseException] = [
    errors.Fenced(WORKFLOW, 7),
    errors.Fenced(WORKFLOW, 7, KEY),
    errors.Contended(WORKFLOW, KEY),
    errors.Suspended(WORKFLOW, KEY),
    errors.AwaitingValue(WORKFLOW, KEY),
    errors.AwaitingMessage(WORKFLOW, KEY),
    errors.AwaitingTime(WORKFLOW, KEY, DUE),
]
FAILURES: list[errors.DurableError] = [
    errors.Swallowed(WORKFLOW, [KEY, "b"], "a suspension"),
    errors.DuplicateStep(WORKFLOW, KEY),
    errors.ReservedKey(WORKFLOW, KEY),
    errors.NotEncodable("the value is nan", WORKFLOW, KEY),
    errors.NotParsed(WORKFLOW, KEY, "'3'", "it is of type str", True),
    errors.StepFailed(WORKFLOW, KEY, "Declined", "no funds"),
    errors.OutcomeUnknown(WORKFLOW, KEY),
    errors.EffectTorn(WORKFLOW, KEY, "it raised after a write"),
]
PLAIN: list[errors.DurableError] = [
    errors.GiveUp("the shop is closed"),
    errors.Misconfigured("write this instead"),
    errors.SchemaMismatch("run prepare"),
    errors.NotEncodable("the value is nan"),
]


@pytest.mark.parametrize("error", INTERRUPTIONS, ids=lambda error: type(error).__name__)
def test_an_interruption_is_no_exception(error: BaseException) -> None:
    """RUN-SUSPEND-BASE: `except Exception` does not absorb what is about the pass."""
    assert isinstance(error, errors.Interruption)
    assert not isinstance(error, Exception)


@pytest.mark.parametrize("error", [*FAILURES, *PLAIN], ids=lambda error: type(error).__name__)
def test_a_failure_is_an_exception(error: BaseException) -> None:
    """RUN-SUSPEND-BASE: what is wrong with the work can be caught as usual."""
    assert isinstance(error, errors.DurableError)
    assert isinstance(error, Exception)


@pytest.mark.parametrize("error", [*INTERRUPTIONS, *FAILURES], ids=lambda error: type(error).__name__)
def test_an_error_names_workflow_and_key_in_one_line(error: BaseException) -> None:
    """Whoever reads the log knows which record it is about."""
    assert repr(WORKFLOW) in str(error)
    assert repr(KEY) in str(error) or getattr(error, "key", None) is None
    assert "\n" not in str(error)


@pytest.mark.parametrize("error", [*INTERRUPTIONS, *FAILURES, *PLAIN], ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle_and_copy(error: BaseException) -> None:
    """An error may cross a process and keeps what it says and what it knows."""
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_the_attributes_carry_the_facts() -> None:
    """Nobody has to read a message to know what happened."""
    fenced = errors.Fenced(WORKFLOW, 7, KEY)
    assert (fenced.workflow, fenced.token, fenced.key) == (WORKFLOW, 7, KEY)
    sleeping = errors.AwaitingTime(WORKFLOW, KEY, DUE)
    assert (sleeping.workflow, sleeping.key, sleeping.due) == (WORKFLOW, KEY, DUE)
    swallowed = errors.Swallowed(WORKFLOW, [KEY, "b"], "a suspension")
    assert (swallowed.workflow, swallowed.keys, swallowed.hidden) == (WORKFLOW, (KEY, "b"), "a suspension")
    assert "'charged', 'b'" in str(swallowed)
    parsed = errors.NotParsed(WORKFLOW, KEY, "'3'", "it is of type str", True)
    assert (parsed.stored, parsed.reason, parsed.fresh) == ("'3'", "it is of type str", True)
    failed = errors.StepFailed(WORKFLOW, KEY, "Declined", "no funds")
    assert (failed.kind, failed.message) == ("Declined", "no funds")


def test_a_reserved_key_is_a_value_error() -> None:
    """ANY-VALID: bad input is a `ValueError`, this one too."""
    assert isinstance(errors.ReservedKey(WORKFLOW, KEY), ValueError)


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


UNRULY: list[object] = ["x" * 10**6, list(range(10**5)), Broken(), 10**5000, {"k\ud800": 1}, "\ud800"]


@pytest.mark.parametrize("value", UNRULY, ids=lambda value: type(value).__name__)
def test_any_value_is_shown_in_a_few_printable_characters(value: object) -> None:
    """A message stays short and printable, whatever the value is and does."""
    text = errors.shortened(value)
    assert 0 < len(text) <= 200
    text.encode()


def test_a_short_value_is_shown_whole() -> None:
    """Nothing is cut that fits."""
    assert errors.shortened({"a": 1}) == "{'a': 1}"
    assert errors.shortened("x" * 100, 20) == "'xxxxxxxxxxxxxxxx..."
