#!lua
-- wake_due: moves what is due into the stream.
-- KEYS: set, states, receipts, bell, stream, leases
-- ARGV: how many at most
-- returns: how many
-- [SCH-NEXT-DEEP]
--@include queue
--@include clock
--@include wakeups
local count = wake_due(tonumber(ARGV[1]))
if count > 0 then
  ring()
end
return count
