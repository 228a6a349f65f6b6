-- Retention: batches of tasks that ended in one call, by the end of their time and by their own end. A batch of members that are
-- kept for their flow has the time of the next look in both orders.
-- uses: finish packed_uuid
local DAY = 86400000 -- ms after which a member that is kept for its flow is looked at again
local living_flows = {} -- flow → whether its last task lives

local function is_kept_for_flow(r)
  local flow = r.links and r.links.flow
  if not flow then return false end
  if living_flows[flow] == nil then
    local seq = call('HGET', IDS, packed_uuid(flow))
    local last = seq and #seq == 6 and load(seq)
    living_flows[flow] = last and not last.ended or false
  end
  return living_flows[flow]
end

local function read_batch(number)
  local seqs = seqs_in(call('HGET', P .. 'retention_batches', number) or '')
  table.sort(seqs, function(a, b) return number_of(a) < number_of(b) end)
  return seqs
end

local function write_rest(number, seqs, first) -- the seqs of a batch from `first` on
  if first <= #seqs then return call('HSET', P .. 'retention_batches', number, table.concat(seqs, '', first)) end
  call('HDEL', P .. 'retention_batches', number)
  for _, key in ipairs({'retention', 'retention_ended', 'result_retention'}) do call('ZREM', P .. key, number) end
end

local function retain_members(seqs) -- the new batch first: an aborted script leaves every member in a batch
  if #seqs == 0 then return end
  local number = next_number('batch')
  call('HSET', P .. 'retention_batches', number, table.concat(seqs))
  for _, key in ipairs({'retention', 'retention_ended'}) do call('ZADD', P .. key, at + DAY, number) end
  flush()
end

local function drop_retained(order, limit, time, most_checked) -- tasks that were revived since are skipped
  local dropped, checked, kept = 0, 0, 0
  while dropped < limit and checked < most_checked do
    local number = call('ZRANGEBYSCORE', P .. order, '-inf', time, 'LIMIT', 0, 1)[1]
    if not number then break end
    local keep_until = tonumber(call('ZSCORE', P .. 'retention', number))
    local ended_at = tonumber(call('ZSCORE', P .. 'retention_ended', number))
    local seqs, i, members = read_batch(number), 1, {}
    flush() -- a task that was revived and ended again in the same millisecond is in two batches
    local tasks, histories = read_fields(TASK, seqs), read_fields(HISTORY, seqs)
    while i <= #seqs and dropped < limit and checked < most_checked do
      local r = tasks[i] and to_record(seqs[i], tasks[i], histories[i])
      local is_batch = r and r.keep_until == keep_until and (r.ended == ended_at or keep_until == ended_at)
      if is_batch and is_kept_for_flow(r) then
        r.keep_until = at + DAY
        save(r)
        members[#members + 1] = r.seq
        kept = kept + 1
      elseif r and (r.raw or is_batch) then
        if r.state then count(r.source, r.state, -1) end
        forget_task(r)
        dropped = dropped + 1
      end
      i = i + 1
      checked = checked + 1
    end
    retain_members(members)
    write_rest(number, seqs, i)
  end
  return dropped, checked, kept
end

local function drop_results(limit)
  for _, number in ipairs(call('ZRANGEBYSCORE', P .. 'result_retention', '-inf', now, 'LIMIT', 0, math.ceil(limit / 10))) do
    for _, seq in ipairs(read_batch(number)) do
      local r = load(seq)
      if r and r.result_until and r.result_until <= now and r.result then
        r.result = nil
        save(r)
      end
    end
    write_rest(number, {}, 1)
  end
  flush()
end

local function ended_in(state)
  local number = 0
  for _, field in ipairs(call('HKEYS', TALLY)) do
    if field:match(':' .. state .. '$') then number = number + counted(field:sub(1, -#state - 2), state) end
  end
  return number
end

local function forget_recent_uuids(limit) -- see forget_ended; a uuid may have been added again since
  for _, packed in ipairs(call('ZRANGEBYSCORE', P .. 'recent_uuids', '-inf', now, 'LIMIT', 0, limit)) do
    local uuids, over = uuids_in(packed), {}
    for i, id in ipairs(read_fields(IDS, uuids)) do
      if id and not is_known(id) then over[#over + 1] = uuids[i] end
    end
    call_in_parts('HDEL', IDS, over)
    call('ZREM', P .. 'recent_uuids', packed)
  end
end
