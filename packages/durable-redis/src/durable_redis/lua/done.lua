#!lua flags=allow-oom
-- done: answers, with nothing further to do.
-- KEYS: set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, receipt
-- returns: 1
-- [SCH-DONE-ANSWERS] [SCH-DONE-NEWER] [SCH-DONE-STALE] [SCH-DONE-CANCELLED]
--@include queue
--@include clock
--@include wakeups
done(ARGV[1], ARGV[2])
return 1
