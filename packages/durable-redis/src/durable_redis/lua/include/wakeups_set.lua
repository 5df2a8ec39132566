-- The wakeups of a queue: Z workflow -> when to look at it (ready, asleep, or the end of a lease), D workflow -> state, X receipt ->
-- workflow, N the bell. A state is receipt|attempt|lapses|newer|due|mark. The receipt is empty while nobody has it and '!' when it is
-- buried, and the mark is then '=' and the reason; mark 'c': its claim was met, and `due` is when it was due. Without a state it is at attempt
-- one and due at its score.

local function ring()
  if redis.call('LLEN', N) == 0 then
    redis.call('RPUSH', N, '1')
  end
end

local function parsed(raw)
  if not raw then
    return '', '1', '0', '0', '', ''
  end
  return string.match(raw, '^([^|]*)|(%d+)|(%d+)|([01])|(%-?%d*)|(.*)$')
end

local function state(workflow, ...)
  redis.call('HSET', D, workflow, table.concat({...}, '|'))
end

-- Lets a workflow run; true when the queue did not know it. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]
local function make_ready(workflow, revive)
  local raw = redis.call('HGET', D, workflow)
  local receipt, attempt, lapses, newer, due, mark = parsed(raw)
  if receipt == '!' then
    if not revive then
      return false
    end
    redis.call('HDEL', D, workflow)
  elseif receipt ~= '' then
    if newer == '0' then
      state(workflow, receipt, attempt, lapses, '1', due, mark)
    end
    return false
  end
  local score = redis.call('ZSCORE', Z, workflow)
  if not score or (mark ~= 'c' and tonumber(score) > now) then
    redis.call('ZADD', Z, clock, workflow)
    ring()
  end
  return not score and not raw
end

-- Has those that were looked at count as given out; a set has no such notion.
local function delivered() end

-- Those to look at now, each with its score, the longest due first. [SCH-NEXT-OLDEST] [SCH-NEXT-DEEP]
local function heads(limit)
  return redis.call('ZRANGEBYSCORE', Z, '-inf', clock, 'WITHSCORES', 'LIMIT', 0, limit)
end

-- In how many microseconds a taker should look again, or ''. The bell is passed on by whoever leaves something due, and by whoever has
-- its hands full now: another has to know when to look.
local function next_due(full)
  local head = redis.call('ZRANGE', Z, 0, 0, 'WITHSCORES')
  if not head[1] then
    return ''
  end
  local due = tonumber(head[2])
  if full or due <= now then
    ring()
  end
  return int(math.max(due - now, 0))
end

-- Gives one out under a receipt. [SCH-NEXT-ONE] [SCH-NEXT-LAPSED]
local function take(workflow, score, receipt, lease)
  local old, attempt, lapses, _, due, mark = parsed(redis.call('HGET', D, workflow))
  if mark ~= 'c' then
    due = int(tonumber(score))
  end
  if old ~= '' then
    attempt, lapses = int(tonumber(attempt) + 1), int(tonumber(lapses) + 1)
    redis.call('HDEL', X, old)
  end
  state(workflow, receipt, attempt, lapses, '0', due, '')
  redis.call('HSET', X, receipt, workflow)
  redis.call('ZADD', Z, int(now + tonumber(lease)), workflow)
  return attempt, lapses, due
end

-- What a take under this receipt gave, or nil: for its repeat. [SCH-NEXT-REPEAT]
local function given(receipt)
  local workflow = redis.call('HGET', X, receipt)
  if not workflow then
    return nil
  end
  local _, attempt, lapses, _, due = parsed(redis.call('HGET', D, workflow))
  return workflow, attempt, lapses, due
end

-- Keeps a delivery for another lease. [SCH-RENEW-SILENT]
local function keep_delivery(workflow, receipt, lease)
  local current, attempt, lapses, newer, due, mark = parsed(redis.call('HGET', D, workflow))
  if current ~= receipt then
    return
  end
  if mark == 'c' then
    state(workflow, receipt, attempt, lapses, newer, due, '')
  end
  redis.call('ZADD', Z, 'GT', int(now + tonumber(lease)), workflow)
end

-- Leaves one until the claim that was met lapses, or is released. [DUR-BEGIN]
local function contended(workflow, score, lapses)
  local receipt, attempt, lapsed, newer, due, mark = parsed(redis.call('HGET', D, workflow))
  if mark ~= 'c' then
    due = int(tonumber(score))
  end
  state(workflow, receipt, attempt, lapsed, newer, due, 'c')
  redis.call('ZADD', Z, lapses, workflow)
end

local function forget(workflow, receipt)
  redis.call('HDEL', D, workflow)
  redis.call('HDEL', X, receipt)
  redis.call('ZREM', Z, workflow)
end

local function set(workflow, when, attempt, lapses)
  if attempt == '1' and lapses == '0' then
    redis.call('HDEL', D, workflow)
  else
    state(workflow, '', attempt, lapses, '0', '', '')
  end
  redis.call('ZADD', Z, int(when), workflow)
  if when <= now or redis.call('ZRANGE', Z, 0, 0)[1] == workflow then
    ring()
  end
end

-- Answers, and sets the next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-NEWER] [SCH-WAKE-STALE] [SCH-WAKE-CANCELLED]
local function wake_at(workflow, receipt, when, attempt, lapses)
  local current, _, _, newer = parsed(redis.call('HGET', D, workflow))
  if current == receipt then
    redis.call('HDEL', X, receipt)
    set(workflow, newer == '1' and math.min(when, now) or when, attempt, lapses)
  end
end

-- Answers. [SCH-DONE-ANSWERS] [SCH-DONE-NEWER] [SCH-DONE-STALE] [SCH-DONE-CANCELLED]
local function done(workflow, receipt)
  local current, _, _, newer = parsed(redis.call('HGET', D, workflow))
  if current == receipt then
    if newer == '1' then
      redis.call('HDEL', X, receipt)
      set(workflow, now, '1', '0')
    else
      forget(workflow, receipt)
    end
  end
end

-- Answers for a workflow that has ended, whatever has arrived since. [DUR-FINISH]
local function ended(workflow, receipt)
  if parsed(redis.call('HGET', D, workflow)) == receipt then
    forget(workflow, receipt)
  end
end

-- Answers, and sets the workflow aside. [SCH-BURY-KEEPS] [SCH-BURY-CANCELLED] [SCH-BURY-STALE]
local function bury(workflow, receipt, reason)
  local current, attempt, lapses, newer, due = parsed(redis.call('HGET', D, workflow))
  if current == receipt then
    redis.call('HDEL', X, receipt)
    redis.call('ZREM', Z, workflow)
    state(workflow, '!', attempt, lapses, newer, due, '=' .. reason)
  end
end

-- Forgets the wakeup, whatever it is doing. [SCH-CANCEL-ALL]
local function cancel(workflow)
  forget(workflow, (parsed(redis.call('HGET', D, workflow))))
end

