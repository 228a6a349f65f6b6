-- Where a task is that waits: which lane lets it in.
local function find_place(r) -- nil: nowhere, it is held
  flush()
  if call('ZSCORE', queue(r), member(r)) then return 'ready' end
  if r.lane and call('ZSCORE', PARKED .. r.lane, r.seq) then return 'parked' end
  return call('ZSCORE', BUCKET .. bucket(r.due), r.seq) and 'scheduled' or nil
end

local function admit_one(r) -- from parked into ready; its alarm stays
  count(r.source, 'parked', -1)
  call('ZREM', PARKED .. r.lane, r.seq)
  enter(r, 'ready')
  flush()
end

local function admit(name) -- parked ones of a lane into ready while it is open
  flush()
  local l = lane(name)
  for done = 0, BATCH - 1 do
    local seq = call('ZRANGE', PARKED .. name, 0, 0)[1]
    if not seq then
      call('SREM', PARKED_LANES, name)
      return done
    end
    local r = load(seq)
    if not has_capacity(l, cost(r)) then return done end
    admit_one(r)
  end
  set_refill(l, now)
  return BATCH
end

local function overtake(r) -- one that has just come may pass those that wait for more tokens than it needs
  flush()
  if call('ZSCORE', PARKED .. r.lane, r.seq) and has_capacity(lane(r.lane), cost(r)) then admit_one(r) end
end
