-- repair: find tasks that are in no place, lease or end, as an aborted script leaves them.
-- KEYS[1]: prefix. ARGV: now, "list", "requeue", "lanes" or "tally", seqs.
-- Returns: their uuids. Those that are requeued have an alarm at their due time, so that the next turn decides; a waiting task waits
--   again. A record whose
--   uuid is not known is the rest of an aborted add, and is deleted. "lanes": lanes with live tasks are counted again.
--   "tally": the tasks of all sources are counted again: a record that could not be read is counted where nothing names it.
--   A counter below the number of ended tasks that increment it is raised to this number; the next turn checks all waits.
-- uses: places counter_keys
local function is_waiting(r) -- for each of its counters, and with its alarm
  for _, each in ipairs(r.wait.counters) do
    if not call('ZSCORE', WAITERS .. each[1], r.seq) then return false end
  end
  return not r.wait_until or call('ZSCORE', BUCKET .. bucket_of(r.wait_until), r.seq)
end

local function is_placed(r)
  if r.ended or r.reason == 'lifted' or call('HEXISTS', LEASED, r.seq) == 1 then return true end
  if UNQUEUED_REASONS[r.reason] then return call('ZSCORE', CHORE, r.seq) end
  if r.wait then return is_waiting(r) end
  return find_place(r)
end

local function requeue(r, pending) -- it is counted where it was: most likely as scheduled, since promote has the most steps
  if UNQUEUED_REASONS[r.reason] then
    buffer(orders, CHORE, next_number('chores'), r.seq)
    buffer(orders, P .. 'unqueued', 0, r.seq)
    recheck = true
    return
  end
  if r.wait then
    begin_wait(r, {r.seq})
    return set_alarm(r, 'waiting')
  end
  pending[r.source] = (pending[r.source] or 0) + 1
  if counted(r.source, 'scheduled') < pending[r.source] then count(r.source, 'scheduled', 1) end
  set_alarm(r, 'scheduled')
end

local function sources()
  local names = {}
  for _, field in ipairs(call('HKEYS', TALLY)) do names[field:match('^(.*):')] = true end
  return keys_of(names)
end

local function count_lanes() -- name → running, admitted and reserved, by the records
  local lanes_found = {}
  local function add(seq, field)
    local r = load(seq)
    if not r or not r.lane or UNQUEUED_REASONS[r.reason] then return end
    local found = lanes_found[r.lane] or {running = 0, admitted = 0, reserved = 0}
    lanes_found[r.lane] = found
    found[field] = found[field] + 1
    if field == 'admitted' then found.reserved = found.reserved + cost(r) end
  end
  for _, seq in ipairs(call('HKEYS', LEASED)) do add(seq, 'running') end
  for _, source in ipairs(sources()) do
    for _, key in ipairs({READY .. source, SUSPECT .. source}) do
      for _, entry in ipairs(call('ZRANGE', key, 0, -1)) do
        if #entry == 7 then add(entry:sub(1, 6), 'admitted') end
      end
    end
  end
  return lanes_found
end

local function count_links(r, ends) -- ends: counter → ended tasks that increment it; those that failed
  if r.wait then begin_wait(r, {r.seq}) end
  if r.links and r.links.flow and r.uuid then
    -- here: flow_index
    index_flow(r.links.flow, {r.uuid, r.seq}, 2)
  end
  for _, name in ipairs(r.ended and r.links and r.links.increments or {}) do
    local counted_ends = ends[name] or {ended = 0, failed = 0}
    ends[name] = counted_ends
    counted_ends.ended = counted_ends.ended + 1
    counted_ends.failed = counted_ends.failed + (r.state == 'succeeded' and 0 or 1)
  end
end

local function raise_counters(ends) -- tasks that were deleted count, too: a counter may be above
  for name, number in pairs(ends) do
    local value = tonumber(call('HGET', COUNTERS, name) or nil) or 0
    local failed = tonumber(call('HGET', COUNTERS_FAILED, name) or nil) or 0
    if value < number.ended or failed < number.failed then
      raised[name] = {ended = math.max(0, number.ended - value), failed = math.max(0, number.failed - failed)}
    end
  end
end

local function count_block(first, found, ends) -- found: field of the tally → number
  local seqs = {}
  for number = first, first + 999 do seqs[#seqs + 1] = struct.pack('>I6', number) end
  local tasks, histories, fences = read_fields(TASK, seqs), read_fields(HISTORY, seqs), read_fields(LEASED, seqs)
  for i, seq in ipairs(seqs) do
    if tasks[i] then
      local r = to_record(seq, tasks[i], histories[i])
      local state = fences[i] and not UNQUEUED_REASONS[r.reason] and 'running' or r.state or find_place(r) or 'scheduled'
      local field = r.source .. ':' .. state
      found[field] = (found[field] or 0) + 1
      count_links(r, ends)
    end
  end
end

if ARGV[2] == 'tally' then
  local found, ends = {}, {}
  for _, block in ipairs(call('HKEYS', SEQ_BLOCKS)) do count_block(tonumber(block) * 1000, found, ends) end
  for _, field in ipairs(call('HKEYS', TALLY)) do
    local is_set_aside = field:match('^(.*):') == UNKNOWN_SOURCE -- such records are no longer there
    if not found[field] and not is_set_aside then call('HDEL', TALLY, field) end
  end
  for field, number in pairs(found) do call('HSET', TALLY, field, number) end
  raise_counters(ends)
  commit()
  return {}
end

if ARGV[2] == 'lanes' then
  local found = count_lanes()
  for _, name in ipairs(call('SMEMBERS', PARKED_LANES)) do
    local l, now_counted = lane(name), found[name] or {running = 0, admitted = 0, reserved = 0}
    l.running, l.admitted, l.reserved = now_counted.running, now_counted.admitted, now_counted.reserved
    l.refill = nil
    set_refill(l, now)
  end
  commit()
  return {}
end

local uuids, pending = {}, {}
for i = 3, #ARGV do
  local r = load(ARGV[i])
  if r and r.uuid and call('HGET', IDS, r.uuid) ~= r.seq then
    if ARGV[2] == 'requeue' then
      call('HDEL', TASK, r.seq)
      call('HDEL', HISTORY, r.seq)
    end
    r = nil
  end
  if r and r.lane and not r.ended and ARGV[2] == 'requeue' then
    call('SADD', PARKED_LANES, r.lane) -- so that the lane is counted again
  end
  if r and not is_placed(r) then
    uuids[#uuids + 1] = r.uuid -- nil if it cannot be read: promote sets it aside
    if ARGV[2] == 'requeue' then requeue(r, pending) end
  end
end
commit()
return uuids
