-- Due alarms: a due time or an expiry. One batch per call.
-- uses: places
local function pop_due()
  local due = {}
  while #due < BATCH do
    local name = call('ZRANGE', ALARMS, 0, 0)[1]
    if not name or name * WIDTH > now then break end
    local key = BUCKET .. name
    local found = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, BATCH - #due)
    if #found > 0 then call('ZREMRANGEBYRANK', key, 0, #found - 1) end
    for _, seq in ipairs(found) do due[#due + 1] = seq end
    if call('EXISTS', key) == 1 then break end
    call('ZREM', ALARMS, name)
  end
  return due
end

local function promote() -- move due tasks to ready, or park them if their lane has no capacity; true: there may be more
  flush()
  local due = pop_due()
  if #due == 0 then return false end
  local tasks, histories = read_fields(TASK, due), read_fields(HISTORY, due)
  for i, seq in ipairs(due) do
    local r = to_record(seq, tasks[i], histories[i])
    local expires = expiry(r)
    if expires and expires <= now then
      r.state = find_place(r) or 'scheduled'
      leave(r, r.state)
      queue_chore(r, 'expired')
    else
      count(r.source, 'scheduled', -1)
      arrive(r)
    end
  end
  return #due == BATCH
end
