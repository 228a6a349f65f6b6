-- repair: find tasks that are in no place, lease or end, as an aborted script leaves them.
-- KEYS[1]: prefix. ARGV: now, "list" or "requeue", seqs.
-- Returns: their uuids. Those that are requeued have an alarm at their due time, so that the next turn decides.
-- uses: places
local function is_placed(r)
  if r.ended or r.reason == 'lifted' or call('HEXISTS', LEASED, r.seq) == 1 then return true end
  if UNQUEUED_REASONS[r.reason] then return call('ZSCORE', CHORE, r.seq) end
  return find_place(r)
end

local function requeue(r, pending) -- it is counted where it was: most likely as scheduled, since promote has the most steps
  if UNQUEUED_REASONS[r.reason] then
    buffer(orders, CHORE, next_number('chores'), r.seq)
    recheck = true
    return
  end
  pending[r.source] = (pending[r.source] or 0) + 1
  if counted(r.source, 'scheduled') < pending[r.source] then count(r.source, 'scheduled', 1) end
  set_alarm(r, 'scheduled')
end

local uuids, pending = {}, {}
for i = 3, #ARGV do
  local r = load(ARGV[i])
  if r and not is_placed(r) then
    uuids[#uuids + 1] = r.uuid -- nil if it cannot be read: promote sets it aside
    if ARGV[2] == 'requeue' then requeue(r, pending) end
  end
end
commit()
return uuids
