#!lua
-- hand_back: releases, and answers with the counts unchanged.
-- KEYS: records, claim, nonces, index, finished, set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, token, receipt, delay, attempt, lapses
-- returns: 1
-- [DUR-HAND-BACK] [DUR-TURN-FENCED] [DUR-CO-COMMIT]
--@include both
--@include clock
--@include claims
--@include wakeups
release(C, ARGV[1], ARGV[2])
wake_at(ARGV[1], ARGV[3], now + tonumber(ARGV[4]), ARGV[5], ARGV[6])
return 1
