#!lua flags=no-writes
-- workflows: shows some workflows of a partition.
-- KEYS: set, states, receipts, bell, [stream, leases], then records and claim of each
-- ARGV: the workflows
-- returns: the clock, and for each workflow its id, how many records, whether it is finished, when its claim lapses or '', its state or
--   '', its score or '', the end of its lease where that is apart or '', and the times of its first and last record
-- [CAT-LIST]
--@include queue
--@include clock
--@include records
local found = {}
for place, workflow in ipairs(ARGV) do
  local r = KEYS[#KEYS - 2 * (#ARGV - place) - 1]
  local claim = redis.call('HMGET', KEYS[#KEYS - 2 * (#ARGV - place)], 'l')
  found[place] = {
    workflow, records(r), redis.call('HEXISTS', r, OUTCOME), claim[1] and now < tonumber(claim[1]) and claim[1] or '',
    redis.call('HGET', D, workflow) or '', redis.call('ZSCORE', Z, workflow) or '',
    L and redis.call('ZSCORE', L, workflow) or '', redis.call('HMGET', r, FIRST, LAST),
  }
end
return {clock, found}
