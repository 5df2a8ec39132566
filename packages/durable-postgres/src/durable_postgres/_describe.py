"""What the store promises, as the server is configured now. [DUR-DESCRIBE]"""

from __future__ import annotations

from datetime import timedelta

from durable_core.contract import Description, Word
from durable_postgres import sql
from durable_postgres._bell import Bell
from durable_postgres._pool import Connections


async def describe(connections: Connections, bell: Bell) -> Description:
    """Ask the server, and say what that means for a write that was acknowledged on a connection of the pool."""
    ((version, fsync, commit, pages, standbys),) = await connections.call(sql.SETTINGS)
    kept: Word = "no" if commit == "off" else "yes"
    flushed: Word = "yes" if kept == "yes" and fsync == "on" and pages == "on" else "no"
    # Without a standby that commits wait for, one that takes over may lack the last of them; whether such a one takes over, and
    # whether it is there at all, cannot be seen from here.
    elsewhere: Word = "unknown" if standbys and commit in ("on", "remote_apply", "remote_write") else "no"
    return Description(
        product="PostgreSQL",
        version=str(version),
        survives_kill=kept,
        survives_power_cut=flushed,
        survives_failover=elsewhere,
        transacts=True,
        undoes=True,
        interleaves=True,
        co_commits=True,
        joins=True,
        lists=True,
        poll=timedelta(seconds=bell.poll),
    )
