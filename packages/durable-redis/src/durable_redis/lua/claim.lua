#!lua
-- claim: takes a workflow for one pass.
-- KEYS: records, claim, [index]
-- ARGV: workflow, nonce, budget, window
-- returns: the token and when it was granted
-- refuses: nil while another pass holds it, and when a repeat of this call comes after the release
-- [CKP-CLAIM-ONE] [CKP-CLAIM-RISING] [CKP-CLAIM-REFUSED] [CKP-CLAIM-LAPSE] [CKP-CLAIM-KEPT] [CKP-CLAIM-REPEAT]
local R, C, I = KEYS[1], KEYS[2], KEYS[3]
--@include clock
--@include claims
local claim = redis.call('HMGET', C, 't', 'l', 'n', 'g')
if claim[3] == ARGV[2] then
  return claim[2] ~= '0' and {claim[1], claim[4]}
end
if claim[2] and now < tonumber(claim[2]) then
  return false
end
if I and not claim[1] then
  redis.call('ZADD', I, 0, ARGV[1])
end
local token = grant(C, claim[1], ARGV[2], ARGV[3], ARGV[4])
redis.call('PERSIST', R)
return {token, clock}
