-- repair: find tasks that are in no place, lease or end, as an aborted script leaves them.
-- KEYS[1]: prefix. ARGV: now, "list", "requeue" or "lanes", seqs.
-- Returns: their uuids. Those that are requeued have an alarm at their due time, so that the next turn decides. A record whose
--   uuid is not known is the rest of an aborted add, and is deleted. "lanes": lanes with parked tasks are counted again.
-- uses: places
local function is_placed(r)
  if r.ended or r.reason == 'lifted' or call('HEXISTS', LEASED, r.seq) == 1 then return true end
  if UNQUEUED_REASONS[r.reason] then return call('ZSCORE', CHORE, r.seq) end
  return find_place(r)
end

local function requeue(r, pending) -- it is counted where it was: most likely as scheduled, since promote has the most steps
  if UNQUEUED_REASONS[r.reason] then
    buffer(orders, CHORE, next_number('chores'), r.seq)
    recheck = true
    return
  end
  if r.lane then call('SADD', PARKED_LANES, r.lane) end -- so that the lane is counted again
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
  elseif r and not is_placed(r) then
    uuids[#uuids + 1] = r.uuid -- nil if it cannot be read: promote sets it aside
    if ARGV[2] == 'requeue' then requeue(r, pending) end
  end
end
commit()
return uuids
