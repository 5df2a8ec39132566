-- Adds an entry above every other, or gives the one that `once` or this call made before. Nonces live for one to two times KEPT and
-- go by time, in two generations: the horizon is the time of the last change and the number that was the last one then.
local KEPT = 900000000

local function remember(nonce, number)
  local since, last = string.match(redis.call('HGET', R, HORIZON) or '0:0', '^(%d+):(%d+)$')
  if now - tonumber(since) > KEPT then
    redis.call('ZREMRANGEBYSCORE', A, '-inf', last)
    redis.call('HSET', R, HORIZON, clock .. ':' .. number)
  end
  redis.call('ZADD', A, number, nonce)
  redis.call('PEXPIRE', A, int(KEPT / 500))
end

-- Gives the entry's number and its marked encoding, or nil when there is no number left below 2^53.
local function append(workflow, marked, once, nonce)
  local number
  if once ~= '' then
    number = redis.call('HGET', R, ONCE .. once)
  else
    number = redis.call('ZSCORE', A, nonce)
  end
  local stored = number and held(string.format('inbox:%020.0f', tonumber(number)))
  if stored then
    return int(tonumber(number)), stored
  end
  if tonumber(redis.call('HGET', R, COUNTER) or '0') + 1 >= LIMIT then
    return nil
  end
  local position, digits = advance(workflow)
  redis.call('HSET', R, string.format('inbox:%020.0f', position), digits .. ':' .. clock .. ':' .. marked, LAST, clock)
  if once ~= '' then
    redis.call('HSET', R, ONCE .. once, digits)
    redis.call('HINCRBY', R, MARKERS, 1)
  else
    remember(nonce, digits)
  end
  return digits, marked
end
