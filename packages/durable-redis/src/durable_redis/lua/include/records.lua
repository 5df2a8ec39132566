-- The records of a workflow are fields of R: key -> position ':' microseconds ':' mark encoding. The mark is v (text), b (bytes) or
-- t (torn: the reason instead of an encoding). Fields that begin with NUL are no keys: the counter, the times of the first
-- and the last record, the ids of `once` and how many there are of them, the horizon of the nonces. I, where there is one, is the index
-- of workflows, and F, where it is there, what has finished, and when.
local COUNTER, FIRST, LAST, ONCE, MARKERS, HORIZON, OUTCOME = '\0n', '\0f', '\0l', '\0o:', '\0m', '\0h', 'outcome:'
local LIMIT = 9007199254740992

-- What is stored under a key, with its mark, or nil.
local function held(key)
  local raw = redis.call('HGET', R, key)
  if not raw then
    return nil
  end
  return string.sub(raw, string.find(raw, ':', string.find(raw, ':', 1, true) + 1, true) + 1)
end

-- The next position, as a number and as digits; the first one of a workflow notes it in the index.
local function advance(workflow, above)
  if above then
    local last = tonumber(redis.call('HGET', R, COUNTER) or '0')
    if above > last + 1 then
      redis.call('HSET', R, COUNTER, int(above - 1))
    end
  end
  local position = redis.call('HINCRBY', R, COUNTER, 1)
  if above or position == 1 then
    redis.call('HSETNX', R, FIRST, clock)
    if I then
      redis.call('ZADD', I, 0, workflow)
    end
  end
  -- The reply is a double here; past 2^53 only the field has every digit.
  return position, position < LIMIT and int(position) or redis.call('HGET', R, COUNTER)
end

-- Writes a record under a free key. `above` is the number of an inbox key, below which no later entry comes. [CKP-APPEND-ABOVE]
local function put(workflow, key, marked, above)
  local _, digits = advance(workflow, above)
  redis.call('HSET', R, key, digits .. ':' .. clock .. ':' .. marked, LAST, clock)
  if F and key == OUTCOME then
    redis.call('ZADD', F, clock, workflow)
  end
end

-- How many records there are.
local function records(r)
  local meta = redis.call('HMGET', r, COUNTER, MARKERS, HORIZON)
  local others = (meta[1] and 3 or 0) + (meta[2] and 1 + tonumber(meta[2]) or 0) + (meta[3] and 1 or 0)
  return redis.call('HLEN', r) - others
end
