-- The wakeups of a queue: S a stream of those that are ready, Z workflow -> when it is due, of those asleep, L workflow -> the end of its
-- lease, D workflow -> state, X receipt -> workflow, N the bell. A state is receipt|attempt|lapses|newer|due|mark. The receipt is empty
-- while nobody has it and '!' when it is buried, and the mark is then '=' and the reason; else the mark is 's' and the entry in the
-- stream, or 'c' (and the entry of what is taken): its claim was met. Without a state it sleeps at attempt one.
local GROUP, CONSUMER, MOST, CURSOR = 'durable', 'durable', 100, '\0cursor'

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

-- Puts one into the stream.
local function enter(workflow, attempt, lapses, due)
  local entry = redis.call('XADD', S, '*', 'w', workflow)
  state(workflow, '', attempt, lapses, '0', due, 's' .. entry)
  redis.call('ZREM', Z, workflow)
end

-- Takes its entry out of the stream, so that nothing is left to trim.
local function leave(mark)
  if mark ~= '' and mark ~= 'c' then
    redis.call('XACK', S, GROUP, string.sub(mark, 2))
    redis.call('XDEL', S, string.sub(mark, 2))
  end
end

local function lost(entry)
  return not redis.call('XRANGE', S, entry, entry)[1]
end

-- Lets a workflow run; true when the queue did not know it. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]
local function make_ready(workflow, revive)
  local raw = redis.call('HGET', D, workflow)
  local receipt, attempt, lapses, newer, due, mark = parsed(raw)
  if receipt == '!' then
    if not revive then
      return false
    end
    attempt, lapses, mark = '1', '0', ''
  elseif receipt ~= '' then
    if newer == '0' then
      state(workflow, receipt, attempt, lapses, '1', due, mark)
    end
    return false
  end
  if string.sub(mark, 1, 1) == 's' then
    if lost(string.sub(mark, 2)) then
      enter(workflow, attempt, lapses, due)
      ring()
    end
    return false
  end
  local score = redis.call('ZSCORE', Z, workflow)
  if mark ~= 'c' then
    enter(workflow, attempt, lapses, int(score and math.min(tonumber(score), now) or now))
    ring()
  end
  return not score and not raw
end

-- Moves those that are due into the stream, some at a time, and says how many. [SCH-NEXT-DEEP]
local function wake_due(most)
  local due = redis.call('ZRANGEBYSCORE', Z, '-inf', clock, 'WITHSCORES', 'LIMIT', 0, most)
  for place = 1, #due, 2 do
    local _, attempt, lapses, _, since, mark = parsed(redis.call('HGET', D, due[place]))
    enter(due[place], attempt, lapses, mark == 'c' and since or int(tonumber(due[place + 1])))
  end
  return #due / 2
end

-- The last entry that was given to the group, which is made anew when it is gone: what is unanswered is all that the stream holds.
local function last_delivered()
  local groups = redis.pcall('XINFO', 'GROUPS', S)
  for _, group in ipairs(groups.err and {} or groups) do
    local said = {}
    for place = 1, #group, 2 do
      said[group[place]] = group[place + 1]
    end
    if said['name'] == GROUP then
      return said['last-delivered-id']
    end
  end
  redis.call('XGROUP', 'CREATE', S, GROUP, '0', 'MKSTREAM')
  return '0-0'
end

-- How many of the heads have lapsed, how many entries lie before the end of each of the others, and how many were passed over.
local lapsed, reached, passed = 0, {}, 0

-- Adds those of the next entries that are ready, up to a limit, and says whether there may be more entries.
local function scan(found, limit, count)
  local entries = redis.call('XRANGE', S, '(' .. last_delivered(), '+', 'COUNT', count)
  passed = 0
  for _, entry in ipairs(entries) do
    local workflow = entry[2][1] == 'w' and entry[2][2] or ''
    local receipt, _, _, _, due, mark = parsed(redis.call('HGET', D, workflow))
    if mark ~= 's' .. entry[1] then
      redis.call('XDEL', S, entry[1]) -- nothing of ours
    else
      passed = passed + 1
      if receipt == '' then -- else it was taken before the group was made anew
        table.insert(found, workflow)
        table.insert(found, due)
        table.insert(reached, passed)
      end
    end
    if #found == 2 * limit then
      break
    end
  end
  return #entries == count
end

-- Those to look at now, each with the time since when: what has lapsed, then the stream. [SCH-NEXT-OLDEST] [SCH-NEXT-DEEP]
local function heads(limit)
  wake_due(MOST)
  local found = redis.call('ZRANGEBYSCORE', L, '-inf', clock, 'WITHSCORES', 'LIMIT', 0, limit)
  lapsed = #found / 2
  if #found < 2 * limit and scan(found, limit, limit) and #found == 0 then
    scan(found, limit, limit + MOST)
  end
  return found
end

-- Has those that were looked at count as given out.
local function delivered(count)
  local entries = count > lapsed and reached[count - lapsed] or (#reached == 0 and passed or 0)
  if entries > 0 then
    redis.call('XREADGROUP', 'GROUP', GROUP, CONSUMER, 'COUNT', entries, 'STREAMS', S, '>')
  end
end

-- Looks at some states, and puts back what somebody has trimmed out of the stream.
local function repair()
  local page = redis.call('HSCAN', D, redis.call('HGET', X, CURSOR) or '0', 'COUNT', MOST)
  for place = 1, #page[2], 2 do
    local receipt, attempt, lapses, _, due, mark = parsed(page[2][place + 1])
    if receipt == '' and string.sub(mark, 1, 1) == 's' and lost(string.sub(mark, 2)) then
      enter(page[2][place], attempt, lapses, due)
      ring()
    end
  end
  redis.call('HSET', X, CURSOR, page[1])
end

-- In how many microseconds a taker should look again, or ''. The bell is passed on by whoever leaves something due, and by whoever has
-- its hands full now: another has to know when to look.
local function next_due(full)
  if redis.call('XRANGE', S, '(' .. last_delivered(), '+', 'COUNT', 1)[1] then
    ring()
    return '0'
  end
  repair()
  local due
  for _, set in ipairs({Z, L}) do
    local head = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
    due = head[1] and math.min(due or math.huge, tonumber(head[2])) or due
  end
  if due and (full or due <= now) then
    ring()
  end
  return due and int(math.max(due - now, 0)) or ''
end

-- Gives one out under a receipt. [SCH-NEXT-ONE] [SCH-NEXT-LAPSED]
local function take(workflow, score, receipt, lease)
  local old, attempt, lapses, _, due, mark = parsed(redis.call('HGET', D, workflow))
  if string.sub(mark, 1, 1) ~= 'c' then
    due = int(tonumber(score))
  end
  if old ~= '' then
    attempt, lapses = int(tonumber(attempt) + 1), int(tonumber(lapses) + 1)
    redis.call('HDEL', X, old)
  end
  state(workflow, receipt, attempt, lapses, '0', due, 's' .. string.sub(mark, 2))
  redis.call('HSET', X, receipt, workflow)
  redis.call('ZADD', L, int(now + tonumber(lease)), workflow)
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
  if string.sub(mark, 1, 1) == 'c' then
    state(workflow, receipt, attempt, lapses, newer, due, 's' .. string.sub(mark, 2))
  end
  redis.call('ZADD', L, 'GT', int(now + tonumber(lease)), workflow)
end

-- Leaves one until the claim that was met lapses, or is released. [DUR-BEGIN]
local function contended(workflow, score, lapses)
  local receipt, attempt, lapsed, newer, due, mark = parsed(redis.call('HGET', D, workflow))
  if string.sub(mark, 1, 1) ~= 'c' then
    due = int(tonumber(score))
  end
  if receipt == '' then
    leave(mark)
    state(workflow, '', attempt, lapsed, newer, due, 'c')
    redis.call('ZADD', Z, lapses, workflow)
  else
    state(workflow, receipt, attempt, lapsed, newer, due, 'c' .. string.sub(mark, 2))
    redis.call('ZADD', L, lapses, workflow)
  end
end

local function forget(workflow, receipt, mark)
  leave(mark)
  redis.call('HDEL', D, workflow)
  redis.call('HDEL', X, receipt)
  redis.call('ZREM', Z, workflow)
  redis.call('ZREM', L, workflow)
end

local function set(workflow, when, attempt, lapses)
  if when <= now then
    enter(workflow, attempt, lapses, int(when))
    ring()
    return
  end
  if attempt ~= '1' or lapses ~= '0' then
    state(workflow, '', attempt, lapses, '0', '', '')
  end
  redis.call('ZADD', Z, int(when), workflow)
  if redis.call('ZRANGE', Z, 0, 0)[1] == workflow then
    ring()
  end
end

-- Answers, and sets the next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-NEWER] [SCH-WAKE-STALE] [SCH-WAKE-CANCELLED]
local function wake_at(workflow, receipt, when, attempt, lapses)
  local current, _, _, newer, _, mark = parsed(redis.call('HGET', D, workflow))
  if current == receipt then
    forget(workflow, receipt, mark)
    set(workflow, newer == '1' and math.min(when, now) or when, attempt, lapses)
  end
end

-- Answers. [SCH-DONE-ANSWERS] [SCH-DONE-NEWER] [SCH-DONE-STALE] [SCH-DONE-CANCELLED]
local function done(workflow, receipt)
  local current, _, _, newer, _, mark = parsed(redis.call('HGET', D, workflow))
  if current == receipt then
    forget(workflow, receipt, mark)
    if newer == '1' then
      set(workflow, now, '1', '0')
    end
  end
end

-- Answers for a workflow that has ended, whatever has arrived since. [DUR-FINISH]
local function ended(workflow, receipt)
  local current, _, _, _, _, mark = parsed(redis.call('HGET', D, workflow))
  if current == receipt then
    forget(workflow, receipt, mark)
  end
end

-- Answers, and sets the workflow aside. [SCH-BURY-KEEPS] [SCH-BURY-CANCELLED] [SCH-BURY-STALE]
local function bury(workflow, receipt, reason)
  local current, attempt, lapses, newer, due, mark = parsed(redis.call('HGET', D, workflow))
  if current == receipt then
    forget(workflow, receipt, mark)
    state(workflow, '!', attempt, lapses, newer, due, '=' .. reason)
  end
end

-- Forgets the wakeup, whatever it is doing. [SCH-CANCEL-ALL]
local function cancel(workflow)
  local receipt, _, _, _, _, mark = parsed(redis.call('HGET', D, workflow))
  forget(workflow, receipt, receipt == '!' and '' or mark)
end

