-- The claim of a workflow is a hash: t the last token, l when it lapses ('0': released), u the end of its budget, a its window,
-- n the nonce of the call that was granted, g when that was, w the queues that wait for it. [CKP-CLAIM-LAPSE]

-- Takes an accepted write as a sign of life, unless the last one is young. [CKP-RECORD-LIVE] [CKP-RELEASE-FINAL]
local function seen(c, lapses, budget, window)
  if lapses ~= '0' then
    local alive = tonumber(window)
    if tonumber(lapses) - now < alive * 2 / 3 then
      redis.call('HSET', c, 'l', int(math.min(tonumber(budget), now + alive)))
    end
  end
end

-- Gives the workflow to a new pass; its token is above the last one, if there was one, and not behind the clock. [CKP-CLAIM-RISING]
-- [CKP-CLAIM-KEPT]
local function grant(c, last_token, nonce, budget, window)
  local token = clock
  if last_token and not (#clock > #last_token or (#clock == #last_token and clock > last_token)) then
    redis.call('HINCRBY', c, 't', 1)
    token = redis.call('HGET', c, 't')
  end
  local last = now + tonumber(budget)
  local lapses = int(math.min(last, now + tonumber(window)))
  redis.call('HSET', c, 't', token, 'l', lapses, 'u', int(last), 'a', window, 'n', nonce, 'g', clock)
  if last_token then
    redis.call('HDEL', c, 'w')
    redis.call('PERSIST', c)
  end
  return token
end

-- Lets whoever met the claim look again now, in whatever queue. The keys of another queue are not declared: a server that refuses
-- that does so at the first of them, and whoever waits there looks again when the claim would have lapsed. [DUR-BEGIN]
local function uncontended(c, workflow, wanted)
  if not wanted then
    return
  end
  redis.call('HDEL', c, 'w')
  for queue in string.gmatch(wanted, '[^%z]+') do
    local d, n = queue .. ':d', queue .. ':n'
    local raw = redis.pcall('HGET', d, workflow)
    if type(raw) == 'string' then
      local front, due, mark = string.match(raw, '^([^|]*|%d+|%d+|[01]|)(%-?%d*)|(.*)$')
      if string.sub(mark, 1, 1) == 'c' then
        local entry = string.sub(mark, 2)
        redis.call('HSET', d, workflow, front .. due .. '|' .. (entry == '' and '' or 's' .. entry))
        redis.call('ZADD', entry == '' and queue .. ':z' or queue .. ':l', due, workflow)
        if redis.call('LLEN', n) == 0 then
          redis.call('RPUSH', n, '1')
        end
      end
    end
  end
end

-- Takes the claim back if this pass holds it; the fence stays. [CKP-RELEASE-FREE]
local function release(c, workflow, token)
  local claim = redis.call('HMGET', c, 't', 'l', 'w')
  if claim[1] == token and claim[2] ~= '0' then
    redis.call('HSET', c, 'l', '0')
    uncontended(c, workflow, claim[3])
  end
end

-- Notes a sign of life; whoever waits for the claim looks again where it lapses sooner now.
local function keep(c, workflow, claim, budget, window)
  local lapses = math.min(budget, now + tonumber(window))
  redis.call('HSET', c, 'l', int(lapses), 'u', int(budget), 'a', window)
  if claim[4] and lapses < tonumber(claim[2]) then
    uncontended(c, workflow, claim[4])
  end
end

-- A sign of life by the holder; false where the claim is lost, or its budget spent. [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET]
local function renew(c, workflow, token, window)
  local claim = redis.call('HMGET', c, 't', 'l', 'u', 'w')
  if claim[1] ~= token or claim[2] == '0' or now >= tonumber(claim[3]) then
    return false
  end
  keep(c, workflow, claim, tonumber(claim[3]), window)
  return true
end
