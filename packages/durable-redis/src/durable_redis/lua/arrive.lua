#!lua
-- arrive: supply, then make_ready.
-- KEYS: records, claim, nonces, index, finished, set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, key, marked encoding
-- returns: 1 when the value is what is stored, else what is, with its mark
-- refuses: what is torn wakes nobody
-- [DUR-ARRIVE] [DUR-CO-COMMIT]
--@include both
--@include clock
--@include records
--@include supply
--@include wakeups
local stored = supply(ARGV[1], ARGV[2], ARGV[3], '')
if stored == 1 or string.sub(stored, 1, 1) ~= 't' then
  make_ready(ARGV[1], false)
end
return stored
