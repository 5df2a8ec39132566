#!lua
-- fail: releases, and answers with the attempt one higher, or buries.
-- KEYS: records, claim, nonces, index, finished, set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, token, receipt, delay or '', attempt, reason
-- returns: 1
-- [DUR-FAIL] [DUR-TURN-FENCED] [DUR-CO-COMMIT]
--@include both
--@include clock
--@include claims
--@include wakeups
release(C, ARGV[1], ARGV[2])
if ARGV[4] == '' then
  bury(ARGV[1], ARGV[3], ARGV[6])
else
  wake_at(ARGV[1], ARGV[3], now + tonumber(ARGV[4]), ARGV[5], '0')
end
return 1
