#!lua flags=allow-oom
-- finish: records the outcome, releases, answers.
-- KEYS: records, claim, nonces, index, finished, set, states, receipts, bell, [stream, leases]
-- ARGV: workflow, token, receipt, marked encoding, retention in milliseconds or ''
-- returns: 1 when the value is the outcome that is stored, else what is, with its mark
-- refuses: -1 when the pass is superseded, or its turn ended otherwise
-- [DUR-FINISH] [DUR-TURN-FENCED] [DUR-CO-COMMIT]
--@include both
--@include clock
--@include records
--@include claims
--@include wakeups
local claim = redis.call('HMGET', C, 't', 'l', 'w')
local stored = held(OUTCOME)
if claim[1] ~= ARGV[2] or (claim[2] == '0' and not stored) then
  return -1
end
if not stored then
  put(ARGV[1], OUTCOME, ARGV[4])
end
if claim[2] ~= '0' then
  redis.call('HSET', C, 'l', '0')
  uncontended(C, ARGV[1], claim[3])
end
ended(ARGV[1], ARGV[3])
if ARGV[5] ~= '' then
  redis.call('PEXPIRE', R, ARGV[5])
  redis.call('PEXPIRE', C, ARGV[5])
end
if not stored or stored == ARGV[4] then
  return 1
end
return stored
