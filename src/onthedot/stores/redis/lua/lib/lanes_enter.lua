-- Into a place of its lane: admitted, or parked behind it.
local function enter_lane(r, state)
  if state == 'ready' then return admitted(lane(r.lane), r, 1) end
  buffer(orders, PARKED .. r.lane, rank(r), r.seq)
  call('SADD', PARKED_LANES, r.lane)
end
