#!lua flags=no-writes
-- result: says how a workflow ended.
-- KEYS: records, states
-- ARGV: workflow
-- returns: the outcome with its mark or nil, and the reason why it is buried or nil
-- [DUR-RESULT]
local R = KEYS[1]
--@include clock
--@include records
local raw = redis.call('HGET', KEYS[2], ARGV[1])
return {held(OUTCOME) or false, raw and string.match(raw, '^!|%d+|%d+|[01]|%-?%d*|=(.*)$') or false}
