#!lua
-- renew: takes a sign of life.
-- KEYS: claim, [set, states, receipts, bell, [stream, leases]]
-- ARGV: workflow, token, window
-- returns: 1, or 0 when the claim is lost or its budget spent
-- [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET] [CKP-HOLD-LOST]
local C = KEYS[1]
--@include clock
--@include claims
return renew(C, ARGV[1], ARGV[2], ARGV[3]) and 1 or 0
