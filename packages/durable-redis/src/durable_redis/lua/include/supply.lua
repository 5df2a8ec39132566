-- Writes a value from outside any pass: 1 when it is what is stored, else what is.
local function supply(workflow, key, marked, number)
  local stored = held(key)
  if not stored then
    put(workflow, key, marked, number ~= '' and tonumber(number))
  end
  if not stored or stored == marked then
    return 1
  end
  return stored
end
