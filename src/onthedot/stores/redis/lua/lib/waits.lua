-- The end of waits: of tasks that wait for a value that a dirty counter has reached. One batch per call.
-- uses: counter_keys places counters alarms
local known = {} -- counter → its value and failures

local function read_counters(names)
  local values, failures = read_fields(COUNTERS, names), read_fields(COUNTERS_FAILED, names)
  for i, name in ipairs(names) do
    known[name] = {value = tonumber(values[i] or nil) or 0, failed = tonumber(failures[i] or nil) or 0}
  end
end

local function in_order(seqs) -- by number: Lua compares strings by the server's locale
  local numbers, by_number, sorted = {}, {}, {}
  for i = 1, #seqs do
    numbers[i] = number_of(seqs[i])
    by_number[numbers[i]] = seqs[i]
  end
  table.sort(numbers)
  for i = 1, #numbers do sorted[i] = by_number[numbers[i]] end
  return sorted
end

local function find_reached(names) -- seqs in order; counter → those that it has; counters that have no more
  local seqs, found, by_name, done = {}, {}, {}, {}
  for _, name in ipairs(names) do
    local left = BATCH - #seqs
    if left == 0 then break end
    local reached = call('ZRANGEBYSCORE', WAITERS .. name, '-inf', known[name].value, 'LIMIT', 0, left)
    by_name[name] = reached
    for _, seq in ipairs(reached) do
      if not found[seq] then
        seqs[#seqs + 1] = seq
        found[seq] = true
      end
    end
    if #reached < left then done[#done + 1] = name end
  end
  return in_order(seqs), by_name, done
end

local function read_waiting(seqs) -- records; those that cannot be read
  local tasks, histories, records, damaged = read_fields(TASK, seqs), read_fields(HISTORY, seqs), {}, {}
  for i, seq in ipairs(seqs) do
    local r = tasks[i] and to_record(seq, tasks[i], histories[i])
    if r and r.policy.undecodable then
      damaged[#damaged + 1] = r
    elseif r and r.wait then
      records[#records + 1] = r
    end
  end
  return records, damaged
end

local function remove_waiters(records, by_name)
  local timeouts, others = {}, {} -- others: of waits for several counters
  for _, r in ipairs(records) do
    count(r.source, 'waiting', -1)
    if r.wait_until then append(timeouts, bucket_of(r.wait_until), r.seq) end
    local counters = r.wait.counters
    for i = 1, #counters > 1 and #counters or 0 do append(others, counters[i][1], r.seq) end
  end
  for name, seqs in pairs(by_name) do call_in_parts('ZREM', WAITERS .. name, seqs) end
  for name, seqs in pairs(others) do call_in_parts('ZREM', WAITERS .. name, seqs) end
  for name, seqs in pairs(timeouts) do
    call_in_parts('ZREM', BUCKET .. name, seqs)
    if call('EXISTS', BUCKET .. name) == 0 then call('ZREM', ALARMS, name) end
  end
end

local function read_others(records) -- counters of these waits that are not dirty
  local names = {}
  for _, r in ipairs(records) do
    for _, each in ipairs(r.wait.counters) do
      if not known[each[1]] then
        names[#names + 1] = each[1]
        known[each[1]] = {}
      end
    end
  end
  read_counters(names)
end

local function is_met(wait) -- by the first of its counters that has its value
  if wait.requires == 'any' then return true end
  for _, each in ipairs(wait.counters) do
    local counter = known[each[1]]
    if counter.value >= each[2] then return (counter.failed > 0) == (wait.requires == 'failure') end
  end
end

local function end_waits() -- true: there may be more
  flush()
  local names = call('SRANDMEMBER', DIRTY_COUNTERS, BATCH)
  read_counters(names)
  local seqs, by_name, done = find_reached(names)
  local records, damaged = read_waiting(seqs)
  local over = {}
  read_others(records)
  remove_waiters(records, by_name)
  for _, r in ipairs(damaged) do end_damaged(r) end
  for _, r in ipairs(records) do
    if is_met(r.wait) then
      over[#over + 1] = r
    else
      clear_wait(r, 'ready')
      queue_chore(r, 'upstream')
    end
  end
  for _, r in ipairs(over) do end_wait(r, due_in(r.wait.delay)) end
  call_in_parts('SREM', DIRTY_COUNTERS, done)
  local more = call('EXISTS', DIRTY_COUNTERS) == 1
  if not more then call('HDEL', SEQUENCES, 'has_dirty_counters') end
  wait_over = more
  return more
end
