-- Into a place: ready, scheduled or parked. A new task's lane is looked at when its alarm comes, and not before.
local function arm(r, moment)
  later(orders, ALARMS, text_of(moment), r.seq)
  if not soonest or moment < soonest then soonest, soonest_of = moment, r.source end
end

local function enter(r, state)
  count(r.source, state, 1)
  move(state, r.seq)
  if state == 'ready' then
    local key = queue(r)
    queues[key], woke[r.source] = r.source, true
    later(orders, key, text_of(rank(r)), member(r))
  end
  local rings = state == 'scheduled' and r.due or expiry(r)
  if rings then arm(r, rings) end
  if r.lane and state ~= 'scheduled' then enter_lane(r, state) end
end

local function write_asked(r, head, body)
  later(sets, TASK, r.seq, struct.pack('>i8I6I2', r.due, r.added, #head) .. head .. r.uuid .. body)
end

local function write_task(r, head, body)
  write_asked(r, head, body)
  enter(r, (r.due <= now and not r.lane) and 'ready' or 'scheduled')
end
