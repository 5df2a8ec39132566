#!lua
-- prepare: writes down how a partition is laid out, unless it is written down already, and that it has this queue.
-- KEYS: layout, queues
-- ARGV: what to write, name of the queue
-- returns: what is written
redis.call('SETNX', KEYS[1], ARGV[1])
redis.call('SADD', KEYS[2], ARGV[2])
return redis.call('GET', KEYS[1])
