"""Durable workflows without a server: the names that a workflow and its application rely on.

Everything else is imported by module: `durable_core.contract` and `.errors` (the whole of both), `.worker`, `.graph`,
`.memory`, `.split`, `.testing`, `.observer`, `.reference`.
"""

from durable_core._thread import in_thread
from durable_core.client import fork, open, result, start
from durable_core.codec import JsonCodec
from durable_core.contract import Catalog, Checkpointer, Client, Durable, Entry, Failed, Finished, Recorded, Scheduler
from durable_core.errors import (
    DurableError,
    EffectTorn,
    Fenced,
    GiveUp,
    NotEncodable,
    NotParsed,
    OutcomeUnknown,
    StepFailed,
    Suspended,
)
from durable_core.outcome import Blocked, Completed, Outcome, Sleeping
from durable_core.parsing import dict_of, list_of, moment, nothing, optional
from durable_core.resume import resume
from durable_core.run import Run

__all__ = [
    "Blocked",
    "Catalog",
    "Checkpointer",
    "Client",
    "Completed",
    "Durable",
    "DurableError",
    "EffectTorn",
    "Entry",
    "Failed",
    "Fenced",
    "Finished",
    "GiveUp",
    "JsonCodec",
    "NotEncodable",
    "NotParsed",
    "Outcome",
    "OutcomeUnknown",
    "Recorded",
    "Run",
    "Scheduler",
    "Sleeping",
    "StepFailed",
    "Suspended",
    "dict_of",
    "fork",
    "in_thread",
    "list_of",
    "moment",
    "nothing",
    "open",
    "optional",
    "result",
    "resume",
    "start",
]
