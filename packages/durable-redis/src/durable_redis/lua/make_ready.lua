#!lua
-- make_ready: lets a workflow run as soon as it can.
-- KEYS: set, states, receipts, bell, [stream, leases], [index]
-- ARGV: workflow, '1' to revive it when it is buried, '1' when there is an index
-- returns: 1
-- [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]
--@include queue
--@include clock
--@include wakeups
if make_ready(ARGV[1], ARGV[2] == '1') and ARGV[3] == '1' then
  redis.call('ZADD', KEYS[#KEYS], 0, ARGV[1])
end
return 1
