#!lua
-- renew_delivery: keeps a delivery for another lease; its receipt stays.
-- KEYS: set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, receipt, lease
-- returns: 1
-- [SCH-RENEW-NAME] [SCH-RENEW-SILENT]
--@include queue
--@include clock
--@include wakeups
keep_delivery(ARGV[1], ARGV[2], ARGV[3])
return 1
