-- Due alarms: a due time, an expiry or the timeout of a wait. One batch per call.
-- uses: places
local function find_due() -- seqs; {bucket, number of due alarms} each
  local due, found = {}, {}
  for _, name in ipairs(call('ZRANGEBYSCORE', ALARMS, '-inf', math.floor(now / WIDTH), 'LIMIT', 0, 100)) do
    if #due >= BATCH then break end
    local seqs = call('ZRANGEBYSCORE', BUCKET .. name, '-inf', now, 'LIMIT', 0, BATCH - #due)
    for _, seq in ipairs(seqs) do due[#due + 1] = seq end
    found[#found + 1] = {name, #seqs}
  end
  return due, found
end

local function remove_alarms(found)
  for _, each in ipairs(found) do
    local key = BUCKET .. each[1]
    if each[2] > 0 then call('ZREMRANGEBYRANK', key, 0, each[2] - 1) end
    if call('EXISTS', key) == 0 then call('ZREM', ALARMS, each[1]) end
  end
end

local function end_damaged(r)
  if r.ended or UNQUEUED_REASONS[r.reason] or call('HEXISTS', LEASED, r.seq) == 1 then return end
  r.state = find_place(r) or 'scheduled'
  leave(r, r.state)
  call('ZREM', P .. 'waiting', r.seq)
  queue_chore(r, 'undecodable')
end

local function wake(r) -- its alarm is due
  local expires = expiry(r)
  if r.policy.undecodable then
    end_damaged(r)
  elseif r.wait then
    leave(r, 'waiting')
    if r.started then end_wait(r, at) else queue_chore(r, 'expired') end
  elseif expires and expires <= now then
    r.state = find_place(r) or 'scheduled'
    leave(r, r.state)
    queue_chore(r, 'expired')
  else
    count(r.source, 'scheduled', -1)
    arrive(r)
  end
end

local function promote() -- move due tasks to ready, or park them if their lane has no capacity; true: there may be more
  flush()
  local due, found = find_due()
  local tasks, histories, records = read_fields(TASK, due), read_fields(HISTORY, due), {}
  for i, seq in ipairs(due) do
    if tasks[i] then records[#records + 1] = to_record(seq, tasks[i], histories[i]) end
  end
  remove_alarms(found)
  for _, r in ipairs(records) do wake(r) end
  return #due == BATCH or #found == 100
end
