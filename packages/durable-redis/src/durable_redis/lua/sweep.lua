#!lua flags=allow-oom
-- sweep: discards those workflows that finished before an instant, and that nobody holds or wakes.
-- KEYS: finished, index, queues, then set and states of each queue, then records, claim and nonces of each workflow
-- ARGV: the instant, '1' for those only whose records have expired, how many queues, the queues, the workflows
-- returns: how many were discarded, how many were left
-- refuses: nil when there are other queues by now
-- [CAT-SWEEP]
--@include clock
local F, I, count = KEYS[1], KEYS[2], tonumber(ARGV[3])
local known = {}
for place = 1, count do
  known[ARGV[3 + place]] = true
end
for _, queue in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  if not known[queue] then
    return false
  end
end

local function is_woken(workflow)
  for place = 1, count do
    if redis.call('ZSCORE', KEYS[2 + 2 * place], workflow) or redis.call('HEXISTS', KEYS[3 + 2 * place], workflow) == 1 then
      return true
    end
  end
  return false
end

local discarded, left = 0, 0
for place = 1, #ARGV - 3 - count do
  local workflow, owned = ARGV[3 + count + place], 2 * count + 3 * place
  local records, claim, nonces = KEYS[owned + 1], KEYS[owned + 2], KEYS[owned + 3]
  local finished, gone = redis.call('ZSCORE', F, workflow), redis.call('EXISTS', records) == 0
  local lapses, woken = redis.call('HGET', claim, 'l'), is_woken(workflow)
  if not finished or tonumber(finished) >= tonumber(ARGV[1]) then
    -- discarded meanwhile, and perhaps finished anew
  elseif not gone and (ARGV[2] == '1' or (lapses and now < tonumber(lapses)) or woken) then
    left = left + 1
  else
    if not gone then
      discarded = discarded + 1
      redis.call('UNLINK', records, claim, nonces)
    end
    redis.call('ZREM', F, workflow)
    if not woken then
      redis.call('ZREM', I, workflow)
    end
  end
end
return {discarded, left}
