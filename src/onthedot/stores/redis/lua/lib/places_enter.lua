-- Into a place: ready, scheduled or parked. A new task's lane is looked at when its alarm comes, and not before.
local function alarm_of(r, state) return state == 'scheduled' and r.due or expiry(r) end

local function bucket(moment) return string.format('%d', math.floor(moment / WIDTH)) end

local function arm(r, state)
  local moment = alarm_of(r, state)
  if not moment then return end
  buffer(alarms, math.floor(moment / WIDTH), text_of(moment), r.seq)
  if not soonest or moment < soonest then soonest, soonest_of = moment, r.source end
end

local function disarm(r, state)
  local moment = alarm_of(r, state)
  if not moment then return end
  local name = bucket(moment)
  local key = BUCKET .. name
  if call('ZREM', key, r.seq) == 1 and call('EXISTS', key) == 0 then call('ZREM', ALARMS, name) end
end

local function enter(r, state)
  count(r.source, state, 1)
  log_transition(state, r.seq)
  if state == 'ready' then
    local key = queue(r)
    queues[key], woken[r.source] = r.source, true
    buffer(orders, key, text_of(rank(r)), member(r))
  end
  arm(r, state)
  if r.lane and state ~= 'scheduled' then enter_lane(r, state) end
end

local function write_asked(r, head, body)
  buffer(sets, TASK, r.seq, struct.pack('>i8I6I2', r.due, r.added, #head) .. head .. r.uuid .. body)
end

local function write_task(r, head, body)
  write_asked(r, head, body)
  enter(r, (r.due <= now and not r.lane) and 'ready' or 'scheduled')
end
