#!lua flags=allow-oom
-- release: takes the claim back.
-- KEYS: claim, [set, states, receipts, bell, [stream, leases]]
-- ARGV: workflow, token
-- returns: 1
-- [CKP-RELEASE-FREE] [CKP-RELEASE-FINAL]
local C = KEYS[1]
--@include clock
--@include claims
release(C, ARGV[1], ARGV[2])
return 1
