#!lua
-- renew_turn: renews the claim, then the delivery.
-- KEYS: records, claim, nonces, index, finished, set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, token, receipt, lease
-- returns: 1, or 0 when the claim is lost; the delivery is then left alone
-- [DUR-KEEP] [DUR-CO-COMMIT]
--@include both
--@include clock
--@include claims
--@include wakeups
if not renew(C, ARGV[1], ARGV[2], ARGV[4]) then
  return 0
end
keep_delivery(ARGV[1], ARGV[3], ARGV[4])
return 1
