-- How the changes of counters are written.
-- uses: counter_keys tallies
local dirty_names = {}

local function write_raised()
  local times = {}
  flush()
  for name, by in pairs(raised) do
    local value = call('HINCRBY', COUNTERS, name, by.ended)
    if by.failed ~= 0 then call('HINCRBY', COUNTERS_FAILED, name, by.failed) end
    times[#times + 1] = at + COUNTER_KEEP
    times[#times + 1] = name
    local reached = call('ZRANGEBYSCORE', WAITERS .. name, '-inf', value, 'LIMIT', 0, 1)
    if #reached > 0 then dirty_names[#dirty_names + 1] = name end
  end
  call_in_parts('ZADD', COUNTER_UNTIL, times)
end

local function check_awaited() -- waits that begin when their counter has the value already
  local names = {}
  for name in pairs(awaited) do names[#names + 1] = name end
  for i, value in ipairs(read_fields(COUNTERS, names)) do
    if awaited[names[i]] <= (tonumber(value or nil) or 0) then dirty_names[#dirty_names + 1] = names[i] end
  end
end

local function mark_dirty()
  if #dirty_names == 0 then return end
  wait_over = true
  call('HSET', SEQUENCES, 'has_dirty_counters', 1) -- first: without it, no turn looks at the set
  call_in_parts('SADD', DIRTY_COUNTERS, dirty_names)
end
