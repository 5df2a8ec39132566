#!lua
-- extend: grants the holder a budget from now.
-- KEYS: claim, [set, states, receipts, bell, [stream, leases]]
-- ARGV: workflow, token, budget, window
-- returns: 1, or 0 when the claim is lost
-- [CKP-EXTEND-GRANT] [CKP-EXTEND-LAPSED] [CKP-HOLD-LOST]
local C = KEYS[1]
--@include clock
--@include claims
local claim = redis.call('HMGET', C, 't', 'l', 'u', 'w')
if claim[1] ~= ARGV[2] or claim[2] == '0' then
  return 0
end
keep(C, ARGV[1], claim, math.max(tonumber(claim[3]), now + tonumber(ARGV[3])), ARGV[4])
return 1
