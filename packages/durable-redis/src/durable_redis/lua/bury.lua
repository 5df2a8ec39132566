#!lua
-- bury: answers, and sets the workflow aside.
-- KEYS: set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, receipt, reason
-- returns: 1
-- [SCH-BURY-KEEPS] [SCH-BURY-CANCELLED] [SCH-BURY-STALE]
--@include queue
--@include clock
--@include wakeups
bury(ARGV[1], ARGV[2], ARGV[3])
return 1
