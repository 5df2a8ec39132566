#!lua
-- wake_at: answers, and sets the next wakeup.
-- KEYS: set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, receipt, due time, attempt, lapses
-- returns: 1
-- [SCH-WAKE-ANSWERS] [SCH-WAKE-COUNT] [SCH-WAKE-NOT-BEFORE] [SCH-WAKE-NEWER] [SCH-WAKE-CANCELLED] [SCH-WAKE-STALE]
--@include queue
--@include clock
--@include wakeups
wake_at(ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5])
return 1
