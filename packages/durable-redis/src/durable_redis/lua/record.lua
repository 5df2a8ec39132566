#!lua
-- record: writes a value as the holder of the claim.
-- KEYS: records, claim, [index], [finished: for an outcome]
-- ARGV: token, key, marked encoding, workflow, number of an inbox key or ''
-- returns: 1 when the value is what is stored, else what is, with its mark
-- refuses: -1 when the token is not the last one, or there is no claim
-- [CKP-RECORD-ONCE] [CKP-RECORD-FIRST] [CKP-RECORD-FENCED] [CKP-RECORD-LAPSED] [CKP-RECORD-LIVE] [CKP-RECORD-STILL]
local R, C, I, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
--@include clock
--@include records
--@include claims
local claim = redis.call('HMGET', C, 't', 'l', 'u', 'a')
if claim[1] ~= ARGV[1] then
  return -1
end
local stored = held(ARGV[2])
if stored and string.sub(stored, 1, 1) == 't' then
  return stored
end
if not stored then
  put(ARGV[4], ARGV[2], ARGV[3], ARGV[5] ~= '' and tonumber(ARGV[5]))
end
seen(C, claim[2], claim[3], claim[4])
if not stored or stored == ARGV[3] then
  return 1
end
return stored
