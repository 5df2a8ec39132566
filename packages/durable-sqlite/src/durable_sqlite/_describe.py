"""What the store promises, as the file is configured now. [DUR-DESCRIBE]"""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from durable_core.contract import Description
from durable_sqlite._tx import Tx
from durable_sqlite._watch import POLL

_FULL = 2


def describe(tx: Tx) -> Description:
    """Ask the connection, and say what that means."""
    synchronous: int = tx.execute("PRAGMA synchronous").fetchall()[0][0]
    return Description(
        product="SQLite",
        version=sqlite3.sqlite_version,
        survives_kill="yes",
        survives_power_cut="yes" if synchronous >= _FULL else "no",
        survives_failover="no",
        transacts=True,
        undoes=True,
        interleaves=False,
        co_commits=True,
        joins=True,
        lists=True,
        poll=timedelta(seconds=POLL),
    )
