-- signal_names: read the names of the kept signals that expire last, each once, the latest first.
-- KEYS[1]: prefix. ARGV: now, the most signals to look at.
-- Returns: names.
-- uses: signals
local names, seen = {}, {}
for _, entry in ipairs(call('ZREVRANGEBYSCORE', SIGNAL_UNTIL, '+inf', '(' .. string.format('%.0f', at), 'LIMIT', 0, ARGV[2])) do
  local name = signal_of(entry)
  if not seen[name] then
    seen[name] = true
    names[#names + 1] = name
  end
end
return names
