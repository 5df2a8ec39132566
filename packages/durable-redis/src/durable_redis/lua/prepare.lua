#!lua
-- prepare: writes down how a partition is laid out, unless it is written down already.
-- KEYS: layout
-- ARGV: what to write
-- returns: what is written
redis.call('SETNX', KEYS[1], ARGV[1])
return redis.call('GET', KEYS[1])
