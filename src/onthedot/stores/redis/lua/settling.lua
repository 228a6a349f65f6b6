-- Settle: the only end. Outcomes come in groups that share claim, kind and keeping time; the first write is a deletion.
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
  if o.after then r.started = started end
  again(r, o.after)
end

local function settle_one(r, o, data, at_)
  local chore = release(r)
  local doubtful = not chore and suspect(r)
  local started = at_
  if chore then started = r.started end
  if o.state then
    if o.state == 'succeeded' then r.result = data else r.error, r.result = data, nil end
    end_task(r, o, started)
  elseif chore then
    r.settled, r.session = o.fence, o.session
    wait_to_end(r, r.why)
  else
    back(r, o, started, data)
  end
  if doubtful then call('HINCRBY', SESSION .. o.session, 'suspects', -1) end
  if r.lane or suspect(r) or declared() then freed(r) end
  if o.adds then add_all(o.adds) end
end

local function settle(o, verdicts) -- o: fence, session, uuids, data; state, keep, keep_result | after, counted; adds
  flush()
  local claim, seqs, mine, held = claim_of(o.fence), several(IDS, o.uuids), {}, {}
  for i, seq in ipairs(seqs) do seqs[i] = seq or '' end
  if claim and claim[1] == o.session then
    for i, fence in ipairs(several(HELD, seqs)) do
      if tonumber(fence) == o.fence and not held[seqs[i]] then
        mine[#mine + 1], held[seqs[i]] = seqs[i], true
      end
    end
    if #mine > 0 then let_go(o.fence, o.session, mine) end
  end
  local asked, past = several(TASK, seqs), several(PAST, seqs)
  for i, seq in ipairs(seqs) do
    if held[seq] then
      held[seq] = nil
      settle_one(to_record(seq, asked[i], past[i]), o, o.data[i], claim[2])
      verdicts[#verdicts + 1] = 'o'
    else
      verdicts[#verdicts + 1] = late(o.fence, o.session, seq)
    end
  end
end
