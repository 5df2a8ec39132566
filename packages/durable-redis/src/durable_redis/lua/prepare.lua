#!lua
-- prepare: writes down how a partition is laid out, unless it is written down already, and that it has this queue.
-- KEYS: layout, queues
-- ARGV: what to write, name of the queue, a key of this slot that is not declared, or ''
-- returns: what is written
-- refuses: -1 where the server lets no script touch a key that is not in KEYS, as begin does
if ARGV[3] ~= '' and type(redis.pcall('EXISTS', ARGV[3])) == 'table' then
  return -1
end
redis.call('SETNX', KEYS[1], ARGV[1])
redis.call('SADD', KEYS[2], ARGV[2])
return redis.call('GET', KEYS[1])
