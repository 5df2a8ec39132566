#!lua flags=no-writes
-- buried: says why a workflow is buried.
-- KEYS: states
-- ARGV: workflow
-- returns: the reason, or nil
-- [SCH-BURY-KEEPS]
local raw = redis.call('HGET', KEYS[1], ARGV[1])
return raw and string.match(raw, '^!|%d+|%d+|[01]|%-?%d*|=(.*)$')
