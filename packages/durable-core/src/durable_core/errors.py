"""What can go wrong, in two trees: what interrupts a pass, and what is wrong with the work.

    BaseException                   asyncio.CancelledError
        Interruption                    Ended
            Fenced                  Exception
            Contended                   DurableError
            Suspended                       Swallowed  DuplicateStep  ReservedKey  NotEncodable  NotParsed
                AwaitingValue               StepFailed  OutcomeUnknown  EffectTorn  GiveUp
                AwaitingMessage             Misconfigured  SchemaMismatch
                AwaitingTime

`Ended` lives in `durable_core.run`, because it alone needs asyncio.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime


def shortened(value: object, limit: int = 200) -> str:
    """Render a value for an error message, in at most so many characters, whatever its `repr` does."""
    try:
        text = repr(value[:limit] if isinstance(value, str) else value)
    except Exception as broken:
        text = f"<{type(value).__name__} whose repr raises {type(broken).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


class Interruption(BaseException):
    """Says something about this pass, not about the work; `except Exception` does not absorb it. [RUN-SUSPEND-BASE]"""


class Fenced(Interruption):
    """The pass no longer holds the workflow: its token was superseded, or its claim is gone."""

    workflow: str
    token: int
    key: str | None

    def __init__(self, workflow: str, token: int, key: str | None = None) -> None:
        super().__init__(workflow, token, key)
        self.workflow, self.token, self.key = workflow, token, key

    def __str__(self) -> str:
        what = "" if self.key is None else f", writing {self.key!r}"
        return f"the pass with token {self.token} no longer holds workflow {self.workflow!r}{what}"


class Contended(Interruption):
    """Another pass recorded a node of this graph: it is advancing the workflow."""

    workflow: str
    key: str

    def __init__(self, workflow: str, key: str) -> None:
        super().__init__(workflow, key)
        self.workflow, self.key = workflow, key

    def __str__(self) -> str:
        return f"another pass of workflow {self.workflow!r} recorded {self.key!r} first"


class Suspended(Interruption):
    """The pass waits for something that is not there yet."""

    workflow: str
    key: str

    def __init__(self, workflow: str, key: str) -> None:
        super().__init__(workflow, key)
        self.workflow, self.key = workflow, key

    def __str__(self) -> str:
        return f"workflow {self.workflow!r} waits for {self.key!r}"


class AwaitingValue(Suspended):
    """The pass waits for a value that somebody supplies."""


class AwaitingMessage(Suspended):
    """The pass waits for an entry in its inbox."""


class AwaitingTime(Suspended):
    """The pass waits for a deadline."""

    due: datetime

    def __init__(self, workflow: str, key: str, due: datetime) -> None:
        super().__init__(workflow, key)
        BaseException.__init__(self, workflow, key, due)  # what pickle and copy make it from
        self.due = due

    def __str__(self) -> str:
        return f"workflow {self.workflow!r} sleeps in {self.key!r} until {self.due.isoformat()}"


class DurableError(Exception):
    """Something is wrong with the work, the code or the configuration."""


class Swallowed(DurableError):
    """The body returned although its pass was suspended or had lost the workflow. [RUN-SUSPEND-NOTED]"""

    workflow: str
    keys: tuple[str, ...]
    hidden: str

    def __init__(self, workflow: str, keys: Sequence[str], hidden: str) -> None:
        super().__init__(workflow, tuple(keys), hidden)
        self.workflow, self.keys, self.hidden = workflow, tuple(keys), hidden

    def __str__(self) -> str:
        names = ", ".join(repr(key) for key in self.keys)
        return f"the body of workflow {self.workflow!r} returned and hid {self.hidden} of {names}: let the exception through"


class DuplicateStep(DurableError):
    """One name was used twice in a pass. [RUN-STEP-NAME]"""

    workflow: str
    key: str

    def __init__(self, workflow: str, key: str) -> None:
        super().__init__(workflow, key)
        self.workflow, self.key = workflow, key

    def __str__(self) -> str:
        return f"workflow {self.workflow!r} uses {self.key!r} twice in one pass: in a loop, number the names"


class ReservedKey(DurableError, ValueError):
    """The key belongs to the library. [CKP-KEY-RESERVED]"""

    workflow: str
    key: str

    def __init__(self, workflow: str, key: str) -> None:
        super().__init__(workflow, key)
        self.workflow, self.key = workflow, key

    def __str__(self) -> str:
        rule = "keys do not begin with inbox: until: start: failed: outcome:, nor are they 'input'"
        return f"{self.key!r} of workflow {self.workflow!r} is reserved: {rule}"


class NotEncodable(DurableError):
    """The codec cannot carry a value; nothing was written. [CDC-REFUSE] [CKP-RECORD-REFUSED]"""

    reason: str
    workflow: str | None
    key: str | None

    def __init__(self, reason: str, workflow: str | None = None, key: str | None = None) -> None:
        super().__init__(reason, workflow, key)
        self.reason, self.workflow, self.key = reason, workflow, key

    def __str__(self) -> str:
        if self.key is None:
            return self.reason
        return f"the value of {self.key!r} of workflow {self.workflow!r} cannot be stored: {self.reason}"


class NotParsed(DurableError):
    """A stored value was refused by the codec or by the step's parser. [RUN-PARSE]

    `fresh` says whether this pass wrote it; `stored` is a short rendering of it.
    """

    workflow: str
    key: str
    stored: str
    reason: str
    fresh: bool

    def __init__(self, workflow: str, key: str, stored: str, reason: str, fresh: bool = False) -> None:
        super().__init__(workflow, key, stored, reason, fresh)
        self.workflow, self.key, self.stored, self.reason, self.fresh = workflow, key, stored, reason, fresh

    def __str__(self) -> str:
        return (
            f"{self.key!r} of workflow {self.workflow!r} holds {self.stored}, which is not what the body expects: {self.reason}"
        )


class StepFailed(DurableError):
    """A step ended in one of its declared `failures`, on this pass or an earlier one. [RUN-STEP-FAILURES]"""

    workflow: str
    key: str
    kind: str
    message: str

    def __init__(self, workflow: str, key: str, kind: str, message: str) -> None:
        super().__init__(workflow, key, kind, message)
        self.workflow, self.key, self.kind, self.message = workflow, key, kind, message

    def __str__(self) -> str:
        return f"step {self.key!r} of workflow {self.workflow!r} failed: {self.kind}: {self.message}"


class OutcomeUnknown(DurableError):
    """An `at_most_once` step began and left neither value nor failure. [RUN-STEP-MAYBE]"""

    workflow: str
    key: str

    def __init__(self, workflow: str, key: str) -> None:
        super().__init__(workflow, key)
        self.workflow, self.key = workflow, key

    def __str__(self) -> str:
        way_out = "supply its value, or discard the workflow"
        return f"step {self.key!r} of workflow {self.workflow!r} began and nobody knows how it ended: {way_out}"


class EffectTorn(DurableError):
    """An effect failed after it had written, on a store that does not undo. [CKP-TRANSACT-TORN]"""

    workflow: str
    key: str
    reason: str

    def __init__(self, workflow: str, key: str, reason: str) -> None:
        super().__init__(workflow, key, reason)
        self.workflow, self.key, self.reason = workflow, key, reason

    def __str__(self) -> str:
        way_out = "find out what it did, then mend or discard"
        return f"the effect {self.key!r} of workflow {self.workflow!r} is torn: {self.reason}: {way_out}"


class GiveUp(DurableError):
    """Raised by a body that wants to be buried at once, with this reason. [RUN-WORK-RETRY]"""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Misconfigured(DurableError):
    """The library is used or set up in a way that cannot work; the message says what to write instead."""


class SchemaMismatch(DurableError):
    """The store's schema is missing, older or newer than this code."""
