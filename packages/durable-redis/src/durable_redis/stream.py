"""The wakeups of workflows in Redis as a stream, for those who want to look at them with the commands of streams."""

from __future__ import annotations

from durable_core.contract import Scheduler
from durable_core.keys import check_limit
from durable_redis._coding import number
from durable_redis._scripts import Variant
from durable_redis.sorted_set import RedisScheduler


class RedisStreamScheduler(RedisScheduler):
    """A `Scheduler` whose ready workflows are entries of a stream, and whose deliveries are pending in a consumer group.

    It keeps the same clauses as `RedisScheduler`, and costs more commands a take. What it buys is that XLEN, XINFO and XPENDING
    show the queue. One consumer stands for all takers, so none is ever dead; an answered entry is deleted, so there is nothing to
    trim; a group that is gone is made anew, and what somebody trimmed comes back, a hundred workflows a look.
    """

    variant: Variant = "stream"
    parts = "zdxnsl"

    async def wake_due(self, limit: int = 100) -> int:
        """Move up to `limit` workflows of each partition that are due into the stream, and say how many. A take does it too."""
        check_limit(limit)
        return sum([number(await self.connection.run("wake_due", place.keys, limit, variant="stream")) for place in self.places])


_: type[Scheduler] = RedisStreamScheduler
