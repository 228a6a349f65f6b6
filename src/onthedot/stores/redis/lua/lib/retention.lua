-- Retention: batches of tasks that ended in one call, of one source and state, by the end of their time and by their own end. A batch
-- of members that are kept for their flow has the time of the next look in both orders. A batch is [length of its kind I2, kind, seqs].
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

local function read_batch(number) -- seqs, kind
  local packed = call('HGET', P .. 'retention_batches', number) or '\0\0'
  local first = 3 + struct.unpack('>I2', packed)
  local seqs = seqs_in(packed:sub(first))
  table.sort(seqs, function(a, b) return number_of(a) < number_of(b) end)
  return seqs, packed:sub(3, first - 1)
end

local function write_rest(number, kind, seqs, first) -- the seqs of a batch from `first` on
  if first <= #seqs then return write_batch(number, kind, table.concat(seqs, '', first)) end
  call('HDEL', P .. 'retention_batches', number)
  for _, key in ipairs({'retention', 'retention_ended', 'result_retention'}) do call('ZREM', P .. key, number) end
  if kind == '' then return end
  for _, key in ipairs({kind, kind:match('^%a+')}) do call('ZREM', P .. 'ended:' .. key, number) end
end

local function retain_members(kind, ended_at, seqs) -- the new batch first: an aborted script leaves every member in a batch
  if #seqs == 0 then return end
  local number = next_number('batch')
  write_batch(number, kind, table.concat(seqs))
  for _, key in ipairs({'retention', 'retention_ended'}) do call('ZADD', P .. key, at + DAY, number) end
  list_ended(number, kind, ended_at)
  flush()
end

local function drop_retained(order, limit, time, most_checked) -- tasks that were revived since are skipped
  local dropped, checked, kept = 0, 0, 0
  while dropped < limit and checked < most_checked do
    local number = call('ZRANGEBYSCORE', P .. order, '-inf', time, 'LIMIT', 0, 1)[1]
    if not number then break end
    local keep_until = tonumber(call('ZSCORE', P .. 'retention', number))
    local ended_at = tonumber(call('ZSCORE', P .. 'retention_ended', number))
    local seqs, kind = read_batch(number)
    local i, members, members_ended = 1, {}, nil
    flush() -- a task that was revived and ended again in the same millisecond is in two batches
    local tasks, histories = read_fields(TASK, seqs), read_fields(HISTORY, seqs)
    while i <= #seqs and dropped < limit and checked < most_checked do
      local r = tasks[i] and to_record(seqs[i], tasks[i], histories[i])
      local is_batch = r and r.keep_until == keep_until and (r.ended == ended_at or keep_until == ended_at)
      if is_batch and is_kept_for_flow(r) then
        r.keep_until = at + DAY
        save(r)
        members[#members + 1], members_ended = r.seq, r.ended -- the same for all
        kept = kept + 1
      elseif r and (r.raw or is_batch) then
        if r.state then count(r.source, r.state, -1) end
        forget_task(r)
        dropped = dropped + 1
      end
      i = i + 1
      checked = checked + 1
    end
    retain_members(kind, members_ended, members)
    write_rest(number, kind, seqs, i)
  end
  return dropped, checked, kept
end

local function drop_results(limit)
  for _, number in ipairs(call('ZRANGEBYSCORE', P .. 'result_retention', '-inf', now, 'LIMIT', 0, math.ceil(limit / 10))) do
    local seqs = read_batch(number)
    for _, seq in ipairs(seqs) do
      local r = load(seq)
      if r and r.result_until and r.result_until <= now and r.result then
        r.result = nil
        save(r)
      end
    end
    write_rest(number, '', {}, 1)
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
