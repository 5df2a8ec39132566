#!lua flags=allow-oom
-- sweep: discards some workflows that finished before an instant, and that nobody holds or wakes.
-- KEYS: finished, index, queues
-- ARGV: the instant, how many to pass over, how many to look at, '1' for those only whose records have expired, this partition's tag
-- returns: how many were discarded, how many were left, how many were looked at
-- Like begin it touches keys that are not in KEYS, in their slot: those of the workflows that it picks, and the queues' states.
-- [CAT-SWEEP]
--@include clock
local F, I, tag = KEYS[1], KEYS[2], ARGV[5]
local queues = redis.call('SMEMBERS', KEYS[3])

local function is_woken(workflow)
  for _, queue in ipairs(queues) do
    local base = tag .. ':q:' .. queue
    if redis.call('ZSCORE', base .. ':z', workflow) or redis.call('HEXISTS', base .. ':d', workflow) == 1 then
      return true
    end
  end
  return false
end

local picked, left = {}, 0
local due = redis.call('ZRANGEBYSCORE', F, '-inf', '(' .. ARGV[1], 'LIMIT', ARGV[2], ARGV[3])
for _, workflow in ipairs(due) do
  local gone = redis.call('EXISTS', tag .. ':r:' .. workflow) == 0
  local lapses = redis.call('HGET', tag .. ':c:' .. workflow, 'l')
  if not gone and (ARGV[4] == '1' or (lapses and now < tonumber(lapses)) or is_woken(workflow)) then
    left = left + 1
  else
    table.insert(picked, {workflow, gone})
  end
end
local count = 0
for _, one in ipairs(picked) do
  local workflow, gone = one[1], one[2]
  if not gone then
    count = count + 1
    redis.call('UNLINK', tag .. ':r:' .. workflow, tag .. ':c:' .. workflow, tag .. ':a:' .. workflow)
  end
  redis.call('ZREM', F, workflow)
  if not is_woken(workflow) then
    redis.call('ZREM', I, workflow)
  end
end
return {count, left, #due}
