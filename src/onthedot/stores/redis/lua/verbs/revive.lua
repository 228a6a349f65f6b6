-- revive: make failed or cancelled tasks due now; attempts are kept, retries and crashes start from 0. The counters of their
-- links are lowered. A task that never started returns to its first wait, if it has one.
-- KEYS[1]: prefix. ARGV: now, uuids.
-- Returns: the uuids of the tasks that are live now.
-- uses: unique_keys
local function revive(r)
  if r.unique then
    local holder = key_holder(r.source, r.unique)
    if holder and holder ~= r.uuid then return false end
    if not r.policy.u then hold_key(r.uuid, r.source, r.unique) end
  end
  count(r.source, r.state, -1)
  r.earlier = r.earlier + 1 + r.retries + r.crashes
  r.revives = r.revives + 1
  r.reason, r.retries, r.crashes, r.cancel_requested, r.due = 'due', 0, 0, false, at
  r.state, r.ended, r.keep_until, r.result_until, r.result, r.error = nil, nil, nil, nil, nil, nil
  if r.links then
    count_ends(r.links, -1, -1)
    if r.links.waits and not r.started then set_wait(r, r.links.waits) end
  end
  save(r)
  enter(r, next_place(r))
  return true
end

local live = {}
for i = 2, #ARGV do
  local seq = call('HGET', IDS, ARGV[i])
  local r = seq and load(seq)
  if r and not r.policy.undecodable and r.state ~= 'succeeded' and (not r.ended or revive(r)) then live[#live + 1] = r.uuid end
end
commit()
return live
