#!lua flags=allow-oom
-- cancel: forgets the wakeup of a workflow, whatever it is doing.
-- KEYS: set, states, receipts, bell, [stream, leases]
-- ARGV: workflow
-- returns: 1
-- [SCH-CANCEL-ALL]
--@include queue
--@include clock
--@include wakeups
cancel(ARGV[1])
return 1
