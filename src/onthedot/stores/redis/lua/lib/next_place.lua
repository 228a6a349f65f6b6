-- The one decision where a record goes that is not leased: chore, waiting, scheduled, parked or ready.
-- uses: records
local function next_place(r, capacity) -- capacity: whether its lane admits it now
  if r.cancel_requested or UNQUEUED_REASONS[r.reason] or r.policy.undecodable then return 'chore' end
  if r.wait then return 'waiting' end
  if r.due > now then return 'scheduled' end
  if not r.lane or capacity then return 'ready' end
  return capacity == nil and 'scheduled' or 'parked' -- nil: add and revive read no lanes; an alarm makes the next turn decide
end
