-- The end of waits: of tasks that wait for a value that a dirty counter has reached. One batch per call.
-- uses: counter_keys places counters alarms insert
local end_waits = (function() -- in a function: one may have 200 local variables
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

local function shapes_of_waits(seqs) -- record and seqs each: tasks of equal heads and histories, as in settle.lua; and damaged records
  local tasks, histories, shapes, by_head, damaged = read_fields(TASK, seqs), read_fields(HISTORY, seqs), {}, {}, {}
  for i, seq in ipairs(seqs) do
    local task, history = tasks[i], histories[i] or ''
    local head = task and #task >= 16 and task:sub(15, 16 + struct.unpack('>I2', task, 15))
    local by_history = by_head[head]
    if not by_history then
      by_history = {}
      by_head[head] = by_history
    end
    local shape = by_history[history]
    if shape then
      shape.seqs[#shape.seqs + 1] = seq
    elseif task then
      local r = to_record(seq, task, histories[i])
      if r.policy.undecodable then
        damaged[#damaged + 1] = r
      elseif r.wait then
        shape = {record = r, seqs = {seq}}
        shapes[#shapes + 1] = shape
        if not r.lane then by_history[history] = shape end -- a lane admits its tasks one by one
      end
    end
  end
  return shapes, damaged
end

local function append_all(lists, key, seqs)
  local list = lists[key] or {}
  local number = #list
  for i = 1, #seqs do list[number + i] = seqs[i] end
  lists[key] = list
end

local function remove_waiters(shapes, by_name)
  local timeouts, others = {}, {} -- others: of waits for several counters
  for _, shape in ipairs(shapes) do
    local r, seqs = shape.record, shape.seqs
    local bucket, counters = r.wait_until and bucket_of(r.wait_until), r.wait.counters
    count(r.source, 'waiting', -#seqs)
    call_in_parts('ZREM', P .. 'waiting', seqs)
    if bucket then append_all(timeouts, bucket, seqs) end
    for j = 1, #counters > 1 and #counters or 0 do append_all(others, counters[j][1], seqs) end
  end
  for name, seqs in pairs(by_name) do -- those with the least values, see find_reached
    if #seqs > 0 then call('ZREMRANGEBYRANK', WAITERS .. name, 0, #seqs - 1) end
  end
  for name, seqs in pairs(others) do call_in_parts('ZREM', WAITERS .. name, seqs) end
  for name, seqs in pairs(timeouts) do
    call_in_parts('ZREM', BUCKET .. name, seqs)
    if call('EXISTS', BUCKET .. name) == 0 then call('ZREM', ALARMS, name) end
  end
end

local function read_others(shapes) -- counters of these waits that are not dirty
  local names = {}
  for _, shape in ipairs(shapes) do
    for _, each in ipairs(shape.record.wait.counters) do
      if not known[each[1]] then
        names[#names + 1] = each[1]
        known[each[1]] = {}
      end
    end
  end
  read_counters(names)
end

local function make_due(shape) -- as `end_wait` in places.lua
  local r, seqs, due = shape.record, shape.seqs, due_in(shape.record.wait.delay)
  if r.lane then return end_wait(r, due) end
  clear_wait(r)
  r.reason, r.due = 'due', math.max(r.due, due)
  local history, list, place = history_of(r, r.due), {}, next_place(r)
  for i = 1, #seqs do
    list[2 * i - 1], list[2 * i] = seqs[i], history
  end
  buffer_list(sets, HISTORY, list)
  if place == 'ready' then queue_sources[queue(r)] = r.source end
  enter_all(r, place, seqs)
  log_transition(r.source, place, table.concat(seqs), #seqs)
end

local function refuse(shape) -- its predecessors are not as it requires
  for _, seq in ipairs(shape.seqs) do
    local r = setmetatable({}, NO_HISTORY)
    for field, value in pairs(shape.record) do r[field] = value end
    r.seq = seq
    clear_wait(r, 'ready')
    queue_chore(r, 'upstream')
  end
end

local function is_met(wait) -- by the first of its counters that has its value
  if wait.requires == 'any' then return true end
  for _, each in ipairs(wait.counters) do
    local counter = known[each[1]]
    if counter.value >= each[2] then return (counter.failed > 0) == (wait.requires == 'failure') end
  end
end

return function() -- true: there may be more
  flush()
  local names = call('SRANDMEMBER', DIRTY_COUNTERS, BATCH)
  read_counters(names)
  local seqs, by_name, done = find_reached(names)
  local shapes, damaged = shapes_of_waits(seqs)
  local over = {}
  read_others(shapes)
  remove_waiters(shapes, by_name)
  for _, r in ipairs(damaged) do end_damaged(r) end
  for _, shape in ipairs(shapes) do
    if is_met(shape.record.wait) then over[#over + 1] = shape else refuse(shape) end
  end
  for _, shape in ipairs(over) do make_due(shape) end
  call_in_parts('SREM', DIRTY_COUNTERS, done)
  local more = call('EXISTS', DIRTY_COUNTERS) == 1
  if not more then call('HDEL', SEQUENCES, 'has_dirty_counters') end
  wait_over = more
  return more
end
end)()
