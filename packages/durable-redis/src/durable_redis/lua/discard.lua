#!lua flags=allow-oom
-- discard: forgets every record.
-- KEYS: records, claim, nonces, [index, finished, set, states, receipts, bell, [stream, leases]]
-- ARGV: workflow, nonce
-- returns: how many records there were
-- [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE] [CKP-DISCARD-FREE] [CKP-DISCARD-UNKNOWN]
local R, C, A, I, F, Z, D = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
--@include clock
--@include records
--@include claims
--@include discard
local count = discard(ARGV[1], ARGV[2])
if I then
  redis.call('ZREM', F, ARGV[1])
  if not redis.call('ZSCORE', Z, ARGV[1]) and redis.call('HEXISTS', D, ARGV[1]) == 0 then
    redis.call('ZREM', I, ARGV[1])
  end
end
return count
