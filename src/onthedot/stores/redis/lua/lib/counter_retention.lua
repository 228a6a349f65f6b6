-- Retention of signals and counters.
-- uses: counter_keys tallies signals
local function drop_signals(limit)
  local expired, names, orders_of = call('ZRANGEBYSCORE', SIGNAL_UNTIL, '-inf', now, 'LIMIT', 0, limit), {}, {}
  for _, entry in ipairs(expired) do
    local name, id = signal_of(entry)
    append(names, SIGNALS .. name, id)
    append(orders_of, SIGNAL_ORDER .. name, id)
  end
  for key, ids in pairs(names) do call_in_parts('HDEL', key, ids) end
  for key, ids in pairs(orders_of) do call_in_parts('ZREM', key, ids) end
  call_in_parts('ZREM', SIGNAL_UNTIL, expired)
end

local function drop_dirty_counters(limit) -- that no task waits for: all were cancelled, and no turn has looked
  local names = {}
  for _, name in ipairs(call('SRANDMEMBER', DIRTY_COUNTERS, limit)) do
    if call('EXISTS', WAITERS .. name) == 0 then names[#names + 1] = name end
  end
  if #names == 0 then return end
  call_in_parts('SREM', DIRTY_COUNTERS, names)
  if call('EXISTS', DIRTY_COUNTERS) == 0 then call('HDEL', SEQUENCES, 'has_dirty_counters') end
end

local function drop_counters(limit) -- not those that a task waits for
  local dropped, renewed = {}, {}
  for _, name in ipairs(call('ZRANGEBYSCORE', COUNTER_UNTIL, '-inf', now, 'LIMIT', 0, limit)) do
    if call('EXISTS', WAITERS .. name) == 1 then
      renewed[#renewed + 1] = at + COUNTER_KEEP
      renewed[#renewed + 1] = name
    else
      dropped[#dropped + 1] = name
    end
  end
  call_in_parts('HDEL', COUNTERS, dropped)
  call_in_parts('HDEL', COUNTERS_FAILED, dropped)
  call_in_parts('ZREM', COUNTER_UNTIL, dropped)
  call_in_parts('ZADD', COUNTER_UNTIL, renewed)
end
