-- The server's clock in microseconds: `clock` is its digits, `now` the number, exact until the year 2255. [ANY-CLOCK]
local now, clock
local function tick()
  local time = redis.call('TIME')
  clock = time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
  now = tonumber(clock)
end
tick()
-- A number in all its digits: `..` and `tostring` keep fourteen.
local function int(number)
  return string.format('%.0f', number)
end
