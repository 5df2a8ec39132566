#!lua flags=allow-oom
-- delete: cancel, then discard.
-- KEYS: records, claim, nonces, index, finished, set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, nonce
-- returns: how many records there were
-- [DUR-DELETE] [DUR-CO-COMMIT]
--@include both
--@include clock
--@include records
--@include claims
--@include discard
--@include wakeups
cancel(ARGV[1])
local count = discard(ARGV[1], ARGV[2])
redis.call('ZREM', I, ARGV[1])
redis.call('ZREM', F, ARGV[1])
return count
