-- What is kept for a time: batches of tasks that ended together, by the end of their time and by their own end.
local function take_batch(number)
  local seqs = seqs_in(call('HGET', P .. 'retention_batches', number) or '')
  table.sort(seqs, function(a, b) return number_of(a) < number_of(b) end)
  return seqs
end

local function put_back(number, seqs, first) -- those of a batch that are not looked at yet
  if first <= #seqs then return call('HSET', P .. 'retention_batches', number, table.concat(seqs, '', first)) end
  call('HDEL', P .. 'retention_batches', number)
  for _, what in ipairs({'retention', 'retention_ended', 'result_retention'}) do call('ZREM', P .. what, number) end
end

local function drop_retained(order, limit, until_, patience) -- those that were revived since are passed over
  local dropped, looked = 0, 0
  while dropped < limit and looked < patience do
    local number = call('ZRANGEBYSCORE', P .. order, '-inf', until_, 'LIMIT', 0, 1)[1]
    if not number then break end
    local over, ended = tonumber(call('ZSCORE', P .. 'retention', number)), tonumber(call('ZSCORE', P .. 'retention_ended', number))
    local seqs, i = take_batch(number), 1
    flush() -- one that was revived and has ended again in the same millisecond is in two batches
    local asked, past = read_fields(TASK, seqs), read_fields(HISTORY, seqs)
    while i <= #seqs and dropped < limit and looked < patience do
      local r = asked[i] and to_record(seqs[i], asked[i], past[i])
      if r and r.ended == ended and r.keep_until == over then
        count(r.source, r.state, -1)
        forget_task(r)
        dropped = dropped + 1
      end
      i, looked = i + 1, looked + 1
    end
    put_back(number, seqs, i)
  end
  return dropped, looked
end

local function drop_results(limit)
  for _, number in ipairs(call('ZRANGEBYSCORE', P .. 'result_retention', '-inf', now, 'LIMIT', 0, math.ceil(limit / 10))) do
    for _, seq in ipairs(take_batch(number)) do
      local r = load(seq)
      if r and r.result_until and r.result_until <= now and r.result then
        r.result = nil
        save(r)
      end
    end
    put_back(number, {}, 1)
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
