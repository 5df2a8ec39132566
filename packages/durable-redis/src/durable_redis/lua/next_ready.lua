#!lua
-- next_ready: takes the wakeup that is due longest.
-- KEYS: set, states, receipts, bell, [stream, leases]
-- ARGV: receipt, lease
-- returns: in how many microseconds to look again or '', then workflow, attempt, lapses and due time when there is one
-- [SCH-NEXT-OLDEST] [SCH-NEXT-ONE] [SCH-NEXT-LAPSED] [SCH-NEXT-REPEAT] [SCH-NEXT-DEEP]
--@include queue
--@include clock
--@include wakeups
local workflow, attempt, lapses, due = given(ARGV[1])
if workflow then
  return {'', workflow, attempt, lapses, due}
end
local head = heads(1)
delivered(#head / 2)
if not head[1] then
  return {next_due()}
end
attempt, lapses, due = take(head[1], head[2], ARGV[1], ARGV[2])
return {next_due(true), head[1], attempt, lapses, due}
