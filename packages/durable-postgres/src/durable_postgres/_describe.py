"""What the store promises, as the server is configured now. [DUR-DESCRIBE]"""

from __future__ import annotations

from datetime import timedelta

from durable_core.contract import Description, Word
from durable_postgres import sql
from durable_postgres._bell import Bell
from durable_postgres._pool import Connections


async def describe(connections: Connections, bell: Bell) -> Description:
    """Ask the server, and say what that means for a write that was acknowledged on a connection of the pool."""
    ((version, fsync, commit, pages, standbys, _standby),) = await connections.call(sql.SETTINGS)
    kept: Word = "no" if commit == "off" else "yes"
    flushed: Word = "yes" if kept == "yes" and fsync == "on" and pages == "on" else "no"
    # Whether a standby that is named has what it must is not to be seen from here, nor whether there is one that is not named.
    standby: Word = "unknown" if kept == "yes" and (standbys or commit not in ("local", "off")) else "no"
    return Description(
        product="PostgreSQL",
        version=str(version),
        survives_kill=kept,
        survives_power_cut=flushed,
        survives_failover=standby if standbys else "no",
        transacts=True,
        undoes=True,
        interleaves=True,
        co_commits=True,
        joins=True,
        lists=True,
        poll=timedelta(seconds=bell.poll),
    )
