-- signal: keep signals under their names, and raise the counters of these names.
-- KEYS[1]: prefix. ARGV: now, the most to keep under a name, then name, id, payload and ms to keep of each signal.
-- Returns: for each 1 if it is new, 0 if its id is kept. The text of a name: too many are kept under it, and nothing was stored.
-- uses: signals counter_keys counters notify
local most, answers, new, by_name, seen = tonumber(ARGV[2]), {}, {}, {}, {}
for i = 3, #ARGV, 4 do
  local name, id = ARGV[i], ARGV[i + 1]
  local entry = signal_entry(name, id)
  local is_new = not seen[entry] and not are_kept(name, {id})[1]
  seen[entry] = true
  answers[#answers + 1] = is_new and 1 or 0
  if is_new then
    new[#new + 1] = {name = name, id = id, entry = entry, payload = ARGV[i + 2], keep_until = at + tonumber(ARGV[i + 3])}
    by_name[name] = (by_name[name] or 0) + 1
  end
end

local function count_kept(name)
  local number = 0
  for _, kept in ipairs(are_kept(name, call('ZRANGE', SIGNAL_ORDER .. name, 0, -1))) do number = number + (kept and 1 or 0) end
  return number
end

local values = {} -- name → value of its counter
for name, number in pairs(by_name) do
  if call('ZCARD', SIGNAL_ORDER .. name) + number > most and count_kept(name) + number > most then return name end
  values[name] = tonumber(call('HGET', COUNTERS, name) or nil) or 0
end
local times = {}
for i, signal in ipairs(new) do
  local name = signal.name
  local number = math.max(at, values[name] + 1)
  count_ends({increments = {name}}, number - values[name], 0)
  values[name] = number
  times[2 * i - 1], times[2 * i] = signal.keep_until, signal.entry
  buffer(sets, SIGNALS .. name, signal.id, signal.payload)
  buffer(orders, SIGNAL_ORDER .. name, text_of(number), signal.id)
end
call_in_parts('ZADD', SIGNAL_UNTIL, times) -- first: purge finds by it what an aborted script leaves
commit()
return answers
