#!lua
-- supply: writes a value from outside any pass.
-- KEYS: records, [index], [finished: for an outcome]
-- ARGV: workflow, key, marked encoding, number of an inbox key or ''
-- returns: 1 when the value is what is stored, else what is, with its mark
-- [CKP-SUPPLY-FREE] [CKP-SUPPLY-ONCE] [CKP-RECORD-STILL]
local R, I, F = KEYS[1], KEYS[2], KEYS[3]
--@include clock
--@include records
--@include supply
return supply(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
