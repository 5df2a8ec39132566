#!lua flags=no-writes
-- workflows: shows some workflows of a partition in the order of their ids.
-- KEYS: set, states, receipts, bell, [stream, leases], index
-- ARGV: '(' and the id to go on after, or '[' and the prefix, or '-'; how many; prefix of records; prefix of claims
-- returns: the clock, and for each workflow its id, how many records, whether it is finished, when its claim lapses or '', its state or
--   '', its score or '', the end of its lease where that is apart or '', and the times of its first and last record
-- [CAT-LIST]
--@include queue
--@include clock
--@include records
local found = {}
for place, workflow in ipairs(redis.call('ZRANGEBYLEX', KEYS[#KEYS], ARGV[1], '+', 'LIMIT', 0, ARGV[2])) do
  local r, claim = ARGV[3] .. workflow, redis.call('HMGET', ARGV[4] .. workflow, 'l')
  found[place] = {
    workflow, records(r), redis.call('HEXISTS', r, OUTCOME), claim[1] and now < tonumber(claim[1]) and claim[1] or '',
    redis.call('HGET', D, workflow) or '', redis.call('ZSCORE', Z, workflow) or '',
    L and redis.call('ZSCORE', L, workflow) or '', redis.call('HMGET', r, FIRST, LAST),
  }
end
return {clock, found}
