-- Outcomes that are no end: too late, or again.
local function late(fence, session, seq)
  flush()
  local r = load(seq)
  return r and r.settled == fence and r.session == session and 'r' or 'l'
end

local function back(r, o, started, error)
  if #error > 0 then
    write_note(r.seq, 'error', tostring(r.earlier + 1 + r.retries + r.crashes), error, o.fence, o.session)
    r.error = error
  end
  r.why, r.retries, r.settled, r.session = 'due', r.retries + (o.counted and 1 or 0), o.fence, o.session
  r.state = nil -- one that was lifted has said where it was
  if o.after then r.started = started end
  requeue(r, o.after)
end
