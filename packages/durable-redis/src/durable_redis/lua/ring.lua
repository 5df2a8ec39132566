#!lua
-- ring: gives a token back that was taken by nobody.
-- KEYS: bell
-- ARGV:
-- returns: 1
-- [SCH-NEXT-WAIT]
if redis.call('LLEN', KEYS[1]) == 0 then
  redis.call('RPUSH', KEYS[1], '1')
end
return 1
