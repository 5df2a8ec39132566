#!lua flags=no-writes
-- now: says what the server's clock reads. The key names the node to ask.
-- KEYS: states
-- ARGV:
-- returns: microseconds since 1970, as digits
-- [ANY-CLOCK]
--@include clock
return clock
