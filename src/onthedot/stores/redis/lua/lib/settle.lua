-- Settle: the only end of a task. Outcomes come in groups that share claim, kind and times. The first write is a deletion,
-- so that a full server drains.
-- A group: fence, session, uuids, data; state, keep, keep_result of an end, or after, counted of a requeue; effects.
-- uses: sessions requeue finish journal insert
local function late_verdict(fence, session, seq)
  local r = load(seq)
  return r and r.settled_fence == fence and r.session == session and 'r' or 'l'
end

local function requeue_outcome(r, o, started, error)
  if #error > 0 then
    local attempt = r.earlier + 1 + r.retries + r.crashes
    write_note(r.seq, 'error', tostring(attempt), error, o.fence, o.session)
    r.error = error
  end
  after_requeue(r, o.fence, o.session, o.counted)
  if o.after then r.started = started end
  requeue(r, o.after)
end

local function settle_one(r, o, data, started)
  local chore = release(r)
  local was_suspect = not chore and is_suspect(r)
  if chore then started = r.started end
  if o.state == 'succeeded' then
    r.result = data
    finish(r, o, started)
  elseif o.state then
    r.error, r.result = data, nil
    finish(r, o, started)
  elseif chore and r.reason ~= 'lifted' then
    r.settled_fence, r.session = o.fence, o.session
    queue_chore(r, r.reason)
  else
    requeue_outcome(r, o, started, data)
  end
  if was_suspect then call('HINCRBY', SESSION .. o.session, 'suspects', -1) end
  if r.lane or is_suspect(r) or has_limits() then release_capacity(r) end
  if o.effects then add(o.effects.groups, o.effects.uuids, o.effects.bodies) end
end

local function take_leases(o, claim, seqs) -- the seqs that this claim still holds; they are released
  local mine, held = {}, {}
  if not claim or claim[1] ~= o.session then return held end
  local holders, fence = read_fields(LEASED, seqs), tostring(o.fence)
  for i = 1, #seqs do
    if holders[i] == fence and not held[seqs[i]] then
      mine[#mine + 1] = seqs[i]
      held[seqs[i]] = true
    end
  end
  if #mine > 0 then release_leases(o.fence, o.session, mine) end
  return held
end

local function settle(o, verdicts)
  flush()
  local claim, seqs = claim_of(o.fence), read_fields(IDS, o.uuids)
  for i = 1, #seqs do seqs[i] = seqs[i] or '' end
  local held = take_leases(o, claim, seqs)
  local tasks, histories = read_fields(TASK, seqs), read_fields(HISTORY, seqs)
  for i = 1, #seqs do
    local seq = seqs[i]
    if held[seq] then
      held[seq] = nil
      local r = o.state and not histories[i] and to_request(seq, tasks[i]) or to_record(seq, tasks[i], histories[i])
      settle_one(r, o, o.data[i], claim[2])
      verdicts[#verdicts + 1] = 'o'
    else
      verdicts[#verdicts + 1] = late_verdict(o.fence, o.session, seq)
    end
  end
end
