#!lua
-- deliver: append, then make_ready.
-- KEYS: records, claim, nonces, index, finished, set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, marked encoding, once or '', nonce
-- returns: the entry's number and its marked encoding
-- refuses: nil when there is no number left below 2^53
-- [DUR-DELIVER] [DUR-CO-COMMIT]
--@include both
--@include clock
--@include records
--@include append
--@include wakeups
local number, stored = append(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if not number then
  return false
end
make_ready(ARGV[1], false)
return {number, stored}
