-- Opaque arguments of a verb, read in order behind the packed ones.
-- uses: prelude
local payload = 0

local function next_payload()
  payload = payload + 1
  return ARGV[payload]
end

local function next_payloads(number)
  local found = {}
  for i = 1, number do found[i] = ARGV[payload + i] end
  payload = payload + number
  return found
end
