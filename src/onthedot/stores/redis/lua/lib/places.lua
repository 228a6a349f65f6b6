-- Places: where a task is that is not leased (scheduled, waiting, parked, ready, or a chore), and how it gets there and leaves.
-- uses: next_place lanes counters change_log notify
local function bucket_of(time) return string.format('%d', math.floor(time / WIDTH)) end

local function set_alarm(r, place)
  local time = alarm_of(r, place)
  if not time then return end
  buffer(alarms, math.floor(time / WIDTH), text_of(time), r.seq)
  if not first_alarm or time < first_alarm then first_alarm, first_alarm_source = time, r.source end
end

local function clear_alarm(r, place)
  local time = alarm_of(r, place)
  if not time then return end
  local name = bucket_of(time)
  local key = BUCKET .. name
  if call('ZREM', key, r.seq) == 1 and call('EXISTS', key) == 0 then call('ZREM', ALARMS, name) end
end

local function park(r)
  buffer(orders, PARKED .. r.lane, rank(r), r.seq)
  buffer(orders, P .. 'parked_order', rank(r), r.seq)
  call('SADD', PARKED_LANES, r.lane)
end

function enter(r, place)
  count(r.source, place, 1)
  log_transition(r.source, place, r.seq, 1)
  if place == 'ready' then
    local key = queue(r)
    queue_sources[key], woken[r.source] = r.source, true
    buffer(orders, key, text_of(rank(r)), member(r))
    if r.lane then add_admitted(lane(r.lane), r, 1) end
  elseif place == 'parked' then
    park(r)
  elseif place == 'waiting' then
    begin_wait(r, {r.seq})
  end
  set_alarm(r, place)
end

local function ready_entries(r) -- {queue, member} each: where it is, if it is ready
  if not r.policy.undecodable then return {{queue(r), member(r)}} end
  local entries, sources = {}, {r.source}
  if r.source == UNKNOWN_SOURCE then
    for _, field in ipairs(call('HKEYS', TALLY)) do sources[#sources + 1] = field:match('^(.*):ready$') end
  end
  for _, source in ipairs(sources) do
    for _, key in ipairs({READY .. source, SUSPECT .. source}) do
      entries[#entries + 1] = {key, r.seq}
      entries[#entries + 1] = {key, r.seq .. 'x'}
    end
  end
  return entries
end

local function find_place(r) -- nil: it is leased
  if r.wait then return 'waiting' end
  flush()
  for _, entry in ipairs(ready_entries(r)) do
    if call('ZSCORE', entry[1], entry[2]) then return 'ready' end
  end
  if r.lane and call('ZSCORE', PARKED .. r.lane, r.seq) then return 'parked' end
  return call('ZSCORE', BUCKET .. bucket_of(r.due), r.seq) and 'scheduled' or nil
end

local function leave(r, place) -- not by a claim
  flush()
  count(r.source, place, -1)
  clear_alarm(r, place)
  if place == 'ready' then
    for _, entry in ipairs(ready_entries(r)) do call('ZREM', entry[1], entry[2]) end
  end
  if place == 'waiting' then
    for _, each in ipairs(r.wait.counters) do call('ZREM', WAITERS .. each[1], r.seq) end
    call('ZREM', P .. 'waiting', r.seq)
    return clear_wait(r, 'ready') -- a chore that has waited is counted as ready
  end
  if not r.lane or place == 'scheduled' then return end
  if place == 'ready' then
    add_admitted(lane(r.lane), r, -1)
  else
    unpark(r.lane, r.seq)
  end
  admit(r.lane) -- its slot is free, or it was before tasks that need fewer tokens
end

local function arrive(r) -- a task that is due: parked tasks of its lane go first
  local capacity = r.lane ~= nil
  if r.lane then
    flush()
    capacity = call('EXISTS', PARKED .. r.lane) == 0 and has_capacity(lane(r.lane), cost(r))
  end
  local place = next_place(r, capacity)
  enter(r, place)
  if place == 'parked' then
    admit(r.lane)
    overtake(r)
  end
end

local function end_wait(r, due) -- it has left `waiting`; due: not before this time, nor before its own
  clear_wait(r)
  r.reason, r.due = 'due', math.max(r.due, due)
  save(r)
  if r.due > now then enter(r, next_place(r)) else arrive(r) end
end

local function end_as_chore(r, reason) -- it is counted where it was, until its lease holder settles it
  r.reason = reason
  save(r)
  count(r.source, r.state, 1)
  log_transition(r.source, r.state, r.seq, 1)
  buffer(orders, P .. 'unqueued', 0, r.seq)
end

function queue_chore(r, reason) -- a lifted task stays until it is lifted again, unless it is to be cancelled
  if r.raw then
    -- here: undecodable
    keep_bytes(r)
    if not r.uuid then return set_aside(r) end
  end
  if reason == 'lifted' and r.cancel_requested then reason = 'cancel' end
  end_as_chore(r, reason)
  if reason == 'lifted' then return end
  buffer(orders, CHORE, next_number('chores'), r.seq)
  recheck = true
end
