#!lua
-- append: adds a message to the inbox.
-- KEYS: records, nonces, [index]
-- ARGV: workflow, marked encoding, once or '', nonce
-- returns: the entry's number and its marked encoding
-- refuses: nil when there is no number left below 2^53
-- [CKP-APPEND-KEY] [CKP-APPEND-ABOVE] [CKP-APPEND-ONCE] [CKP-APPEND-REPEAT] [CKP-APPEND-SORTED]
local R, A, I = KEYS[1], KEYS[2], KEYS[3]
--@include clock
--@include records
--@include append
local number, stored = append(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return number and {number, stored}
