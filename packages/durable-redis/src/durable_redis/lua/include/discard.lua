-- Forgets every record, and fences whoever holds the claim. The answer is kept beside the fence for a repeat of this call; both go
-- after KEPT milliseconds, when tokens rise by the clock. [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE] [CKP-DISCARD-UNKNOWN]
local KEPT = 3600000

local function discard(workflow, nonce)
  local claim = redis.call('HMGET', C, 't', 'dn', 'dc', 'w')
  if claim[2] == nonce then
    return tonumber(claim[3])
  end
  local count = records(R)
  if not claim[1] and count == 0 then
    return 0
  end
  redis.call('UNLINK', R, A)
  redis.call('HINCRBY', C, 't', 1)
  redis.call('HSET', C, 'l', '0', 'n', '', 'dn', nonce, 'dc', count)
  redis.call('PEXPIRE', C, KEPT)
  uncontended(C, workflow, claim[4])
  return count
end
