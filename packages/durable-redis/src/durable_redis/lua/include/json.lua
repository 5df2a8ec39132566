-- Says whether a text is JSON as Python reads it: `cjson` alone also takes NaN, 0x10 and whatever bytes.
local function is_number(word)
  local whole, rest = string.match(word, '^%-?(%d+)(.*)$')
  if not whole or (#whole > 1 and string.sub(whole, 1, 1) == '0') then
    return false
  end
  rest = string.gsub(rest, '^%.%d+', '', 1)
  return rest == '' or string.find(rest, '^[eE][+-]?%d+$') ~= nil
end

local function is_utf8(text)
  if not string.find(text, '[\128-\255]') then
    return true
  end
  local rest = string.gsub(text, '[\194-\223][\128-\191]', '')
  rest = string.gsub(rest, '\224[\160-\191][\128-\191]', '')
  rest = string.gsub(rest, '[\225-\236\238\239][\128-\191][\128-\191]', '')
  rest = string.gsub(rest, '\237[\128-\159][\128-\191]', '')
  rest = string.gsub(rest, '\240[\144-\191][\128-\191][\128-\191]', '')
  rest = string.gsub(rest, '[\241-\243][\128-\191][\128-\191][\128-\191]', '')
  rest = string.gsub(rest, '\244[\128-\143][\128-\191][\128-\191]', '')
  return not string.find(rest, '[\128-\255]')
end

local function is_json(text)
  if not is_utf8(text) or not pcall(cjson.decode, text) then
    return false
  end
  local bare, strings = string.gsub(text, '\\.', ''), true
  bare = string.gsub(bare, '"([^"]*)"', function(inside)
    strings = strings and not string.find(inside, '[%z\1-\31]')
    return ' '
  end)
  for word in string.gmatch(bare, '[^%s%[%]{},:]+') do
    if word ~= 'true' and word ~= 'false' and word ~= 'null' and not is_number(word) then
      return false
    end
  end
  return strings
end
