-- Settle: the only end. Outcomes come in groups that share claim, kind and keeping time; the first write is a deletion.
local function settle_one(r, o, data, at_)
  local chore = release(r)
  local doubtful = not chore and is_suspect(r)
  local started = at_
  if chore then started = r.started end
  if o.state then
    if o.state == 'succeeded' then r.result = data else r.error, r.result = data, nil end
    end_task(r, o, started)
  elseif chore and r.why ~= 'lifted' then
    r.settled, r.session = o.fence, o.session
    queue_chore(r, r.why)
  else
    back(r, o, started, data)
  end
  if doubtful then call('HINCRBY', SESSION .. o.session, 'suspects', -1) end
  if r.lane or is_suspect(r) or declared() then release_capacity(r) end
  if o.adds then add_all(o.adds) end
end

local function settle(o, verdicts) -- o: fence, session, uuids, data; state, keep, keep_result | after, counted; adds
  flush()
  local claim, seqs, mine, held = claim_of(o.fence), read_fields(IDS, o.uuids), {}, {}
  for i = 1, #seqs do seqs[i] = seqs[i] or '' end
  if claim and claim[1] == o.session then
    local holders, fence = read_fields(LEASED, seqs), tostring(o.fence)
    for i = 1, #seqs do
      if holders[i] == fence and not held[seqs[i]] then
        mine[#mine + 1], held[seqs[i]] = seqs[i], true
      end
    end
    if #mine > 0 then release_leases(o.fence, o.session, mine) end
  end
  local asked, past = read_fields(TASK, seqs), read_fields(HISTORY, seqs)
  for i = 1, #seqs do
    local seq = seqs[i]
    if held[seq] then
      held[seq] = nil
      if past[i] or not o.like or not ends_alike(o, i, seq, asked[i]) then
        local r = o.state and not past[i] and headed(seq, asked[i]) or to_record(seq, asked[i], past[i])
        settle_one(r, o, o.data[i], claim[2])
        o.like = o.like or likeness(o, r, asked[i])
      end
      verdicts[#verdicts + 1] = 'o'
    else
      verdicts[#verdicts + 1] = late(o.fence, o.session, seq)
    end
  end
  if o.like then count_alike(o) end
end
