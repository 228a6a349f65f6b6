-- A uuid as it is stored, of its text: see uuid_format.py.
-- uses: prelude
local function packed_uuid(text)
  local hex = '[0-9a-f]'
  local four = hex:rep(4)
  if not text:match('^' .. four .. four .. ('%-' .. four):rep(4) .. four .. four .. '$') then
    return string.char(math.min(#text, 255)) .. text:sub(1, 255)
  end
  local bytes = text:gsub('%-', ''):gsub('..', function(digits) return string.char(tonumber(digits, 16)) end)
  return '\0' .. bytes
end
