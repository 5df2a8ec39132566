#!lua
-- transact: applies an effect and records what it gives.
-- KEYS: records, claim, [index], [finished: for an outcome], then the effect's
-- ARGV: token, key, workflow, number of an inbox key or '', encoding of None with its mark, '1' when the encoding is JSON,
--   how many of KEYS are ours, the effect's source, then the effect's arguments
-- returns: 1 and what is stored, with its mark
-- refuses: -1 fenced; -2 and a reason, torn; -3 and the error of an effect that failed before it wrote; -4 and why its result is refused
-- [CKP-TRANSACT-ONCE] [CKP-TRANSACT-ATOMIC] [CKP-TRANSACT-RECORDED] [CKP-TRANSACT-OWN] [CKP-TRANSACT-TORN] [CKP-TRANSACT-LIVE]
local ours = tonumber(ARGV[7])
local R, C, I, F = KEYS[1], KEYS[2], ours >= 3 and KEYS[3] or nil, ours == 4 and KEYS[4] or nil
--@include clock
--@include records
--@include claims
--@include effect
--@include json
local claim = redis.call('HMGET', C, 't', 'l', 'u', 'a')
if claim[1] ~= ARGV[1] then
  return {-1}
end
local stored = held(ARGV[2])
if stored then
  if string.sub(stored, 1, 1) == 't' then
    return {-2, string.sub(stored, 2)}
  end
  seen(C, claim[2], claim[3], claim[4])
  return {1, stored}
end

local keys, args = {}, {}
for place = ours + 1, #KEYS do
  keys[place - ours] = KEYS[place]
end
for place = 9, #ARGV do
  args[place - 8] = ARGV[place]
end
local ok, given = effect(ARGV[8], keys, args)

local refused
if not ok then
  refused = tostring(given)
elseif given == nil then
  stored = ARGV[5]
elseif type(given) ~= 'string' then
  refused = 'an effect returns a string that is the encoding of its value, or nothing, and this one returned a ' .. type(given)
    .. ": read the value back as a string, as in return redis.call('HGET', key, field), or quote it"
elseif ARGV[6] == '1' and not is_json(given) then
  refused = 'an effect returns a string that is JSON, and this one returned ' .. string.sub(given, 1, 100)
else
  stored = string.sub(ARGV[5], 1, 1) .. given
end
if refused and not wrote then
  return {ok and -4 or -3, refused}
end
tick()
put(ARGV[3], ARGV[2], stored or 't' .. refused, ARGV[4] ~= '' and tonumber(ARGV[4]))
seen(C, claim[2], claim[3], claim[4])
if stored then
  return {1, stored}
end
return {-2, refused}
