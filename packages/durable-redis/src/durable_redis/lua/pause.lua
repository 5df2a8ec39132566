#!lua
-- pause: releases and answers, with the next wakeup when there is a due time.
-- KEYS: records, claim, nonces, index, finished, set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, token, receipt, due time or ''
-- returns: 1
-- [DUR-PAUSE] [DUR-TURN-FENCED] [DUR-CO-COMMIT]
--@include both
--@include clock
--@include claims
--@include wakeups
release(C, ARGV[1], ARGV[2])
if ARGV[4] == '' then
  done(ARGV[1], ARGV[3])
else
  wake_at(ARGV[1], ARGV[3], tonumber(ARGV[4]), '1', '0')
end
return 1
