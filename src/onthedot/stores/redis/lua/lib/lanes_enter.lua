-- Into a place of its lane: admitted, or parked behind it.
local function enter_lane(r, state)
  if state == 'ready' then return admitted(lane(r.lane), r, 1) end
  later(orders, PARKED .. r.lane, rank(r), r.seq)
  call('SADD', SHUT, r.lane)
end
