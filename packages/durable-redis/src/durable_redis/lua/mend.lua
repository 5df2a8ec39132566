#!lua
-- mend: replaces a torn mark by what was found to be true; position and time stay.
-- KEYS: records
-- ARGV: key, marked encoding
-- returns: 1, or 0 when the key is not torn
-- [CKP-TRANSACT-TORN]
local raw = redis.call('HGET', KEYS[1], ARGV[1])
local front = raw and string.match(raw, '^(%d+:%d+:)t')
if not front then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], front .. ARGV[2])
return 1
