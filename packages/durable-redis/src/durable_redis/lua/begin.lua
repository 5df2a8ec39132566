#!lua
-- begin: takes what is due, claims it and loads it.
-- KEYS: set, states, receipts, bell, [stream, leases], then records and claim of each workflow that is hinted at
-- ARGV: nonce, lease, budget, limit, prefix of records, prefix of claims, this queue, how many records a turn brings, '1' to take none but those
--   that are hinted at, and these, the longest due first
-- returns: in how many microseconds to look again or '', '1' when more may be due (or, with hints, the next to hint at), then for each turn
--   workflow, receipt, attempt, lapses, due time, token, when it was granted, and the records as a flat list, or nil where they are many
-- Without hints it touches keys which are not in KEYS: records and claim of the workflows that it picks, which are in the slot of the
-- queue. It reads all of them before it writes, so that a refusal leaves nothing. (The other such keys: `uncontended`, in claims.)
-- [DUR-BEGIN] [DUR-BEGIN-FRESH] [DUR-BEGIN-REPEAT] [DUR-CO-COMMIT]
--@include queue
--@include clock
--@include records
--@include claims
--@include wakeups
local limit, most = tonumber(ARGV[4]), tonumber(ARGV[8])

local function loaded(r)
  return redis.call('HLEN', r) <= most and redis.call('HGETALL', r)
end

local turns = {}
for place = 1, limit do
  local receipt = ARGV[1] .. '.' .. place
  local workflow, attempt, lapses, due = given(receipt)
  if not workflow then
    break
  end
  local claim = redis.call('HMGET', ARGV[6] .. workflow, 't', 'l', 'n', 'g')
  if claim[3] == receipt and claim[2] ~= '0' then
    table.insert(turns, {workflow, receipt, attempt, lapses, due, claim[1], claim[4], loaded(ARGV[5] .. workflow)})
  end
end
if turns[1] then
  return {'', '0', unpack(turns)}
end

local due, hinted = heads(limit + 8), {}
for place = 10, #ARGV do
  hinted[ARGV[place]] = true
end
local finished, held, picked, others = {}, {}, {}, {}
for place = 1, #due, 2 do
  local workflow, score = due[place], due[place + 1]
  if ARGV[9] == '1' and (#picked == limit or others[1] or not hinted[workflow]) then
    table.insert(others, workflow)
  elseif redis.call('HEXISTS', ARGV[5] .. workflow, OUTCOME) == 1 then
    table.insert(finished, workflow)
  else
    local claim = redis.call('HMGET', ARGV[6] .. workflow, 'l', 'w', 't')
    if claim[1] and now < tonumber(claim[1]) then
      table.insert(held, {workflow, score, claim[1], claim[2] or ''})
    else
      table.insert(picked, {workflow, score, loaded(ARGV[5] .. workflow), claim[3]})
    end
  end
  if #picked == limit and ARGV[9] ~= '1' then
    break
  end
end

delivered(#finished + #held + #picked)
for _, workflow in ipairs(finished) do
  cancel(workflow)
end
for _, met in ipairs(held) do
  contended(met[1], met[2], met[3])
  if not string.find('\0' .. met[4] .. '\0', '\0' .. ARGV[7] .. '\0', 1, true) then
    redis.call('HSET', ARGV[6] .. met[1], 'w', met[4] == '' and ARGV[7] or met[4] .. '\0' .. ARGV[7])
  end
end
for place, found in ipairs(picked) do
  local receipt = ARGV[1] .. '.' .. place
  local attempt, lapses, since = take(found[1], found[2], receipt, ARGV[2])
  local token = grant(ARGV[6] .. found[1], found[4], receipt, ARGV[3], ARGV[2])
  table.insert(turns, {found[1], receipt, attempt, lapses, since, token, clock, found[3]})
end
local more = ARGV[9] == '1' and others or (#picked < limit and #due == 2 * (limit + 8) and '1' or '0')
return {next_due(#picked == limit), more, unpack(turns)}
