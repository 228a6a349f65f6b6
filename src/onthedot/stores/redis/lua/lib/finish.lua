-- The end of a task: it is retained for a time, or deleted at once.
-- uses: unique_keys
local RECENT = 10000 -- ms after its add
local retained, results = {}, {} -- time:state:source → seqs of tasks; time → seqs of results that are dropped before their tasks

local function forget_task(r)
  if r.uuid then buffer(deletions, IDS, r.uuid) end
  buffer(deletions, TASK, r.seq)
  buffer(deletions, HISTORY, r.seq)
  local number = number_of(r.seq)
  call('DEL', P .. 'journal:' .. number, P .. 'journal_order:' .. number, P .. 'subscribers:' .. number)
  if r.links and r.links.flow then append(unlinked, r.links.flow, r.seq) end
  if r.reason == 'undecodable' then call('HDEL', P .. 'undecodable', r.seq) end
  if r.digest then count_records(r.digest, number, number, -1) end
end

local function free_key(r, uuid)
  local field = r.source .. '/' .. r.unique
  local held = call('HGET', P .. 'unique_keys', field)
  if held and unpacked(held)[1] == uuid then call('HDEL', P .. 'unique_keys', field) end
end

local function ended_with_results(r, o, seqs, data) -- seq and history in turn
  local own_time = o.keep_result and at + math.min(o.keep, o.keep_result) -- of results that have a time of their own
  local ends_before, due = own_time and o.keep_result < o.keep, not r.fresh and r.due or nil
  local plain, timed, list
  r.result, list = '', {}
  for i = 1, #seqs do
    local seq, result, prefix = seqs[i], data[i], plain
    if own_time and #result > 0 then
      if not timed then
        r.result_until = own_time
        timed = history_of(r, due)
      end
      prefix = timed
      if ends_before then append(results, own_time, seq) end
    elseif not plain then
      r.result_until = nil
      plain = history_of(r, due)
      prefix = plain
    end
    list[2 * i - 1], list[2 * i] = seq, prefix .. result
  end
  return list
end

local function ended_with_errors(r, seqs, errors)
  local list, due = {}, not r.fresh and r.due or nil
  r.result, r.result_until = nil, nil
  for i = 1, #seqs do
    r.error = errors[i]
    list[2 * i - 1], list[2 * i] = seqs[i], history_of(r, due)
  end
  return list
end

local function forget_ended(r, o, tasks) -- a repeated add is recognised for a time: the uuids stay until then
  local recent, latest = {}, 0
  log_transition(r.source, 'gone:' .. o.state, table.concat(tasks.uuids), #tasks.uuids)
  for i = 1, #tasks.seqs do
    local uuid, task = tasks.uuids[i], tasks.tasks[i] or ''
    local known_until = (#task >= 14 and struct.unpack('>I6', task, 9) or 0) + RECENT
    r.seq, r.uuid = tasks.seqs[i], uuid
    if known_until > now then
      r.uuid = nil
      buffer(sets, IDS, uuid, text_of(known_until))
      recent[#recent + 1] = uuid
      latest = math.max(latest, known_until)
    end
    forget_task(r)
  end
  if #recent > 0 then call('ZADD', P .. 'recent_uuids', latest, table.concat(recent)) end
end

local function finish(r, o, started, tasks) -- o, tasks: see settle.lua; r: the record that the tasks share, but for seq and uuid
  local seqs, uuids = tasks.seqs, tasks.uuids
  if r.unique and not r.policy.u then
    for i = 1, #uuids do free_key(r, uuids[i]) end
  end
  if r.links then count_ends(r.links, #seqs, o.state ~= 'succeeded' and #seqs or 0) end
  if r.subscribed then
    -- here: subscriptions
    end_subscriptions(seqs, uuids)
    r.subscribed = nil
  end
  if r.policy.r then append(ended, r.policy.r, table.concat(uuids)) end
  if o.keep <= 0 then return forget_ended(r, o, tasks) end
  local all = table.concat(seqs)
  count(r.source, o.state, #seqs)
  log_transition(r.source, o.state, all, #seqs)
  append(retained, text_of(at + o.keep) .. ':' .. o.state .. ':' .. r.source, all)
  r.state, r.settled_fence, r.session = o.state, o.fence, o.session
  r.started, r.ended, r.keep_until = started, at, at + o.keep
  if o.state == 'succeeded' then
    buffer_list(sets, HISTORY, ended_with_results(r, o, seqs, tasks.data))
  else
    buffer_list(sets, HISTORY, ended_with_errors(r, seqs, tasks.data))
  end
end

local function write_batch(number, kind, seqs) -- kind: state:source of tasks, "" of results
  call('HSET', P .. 'retention_batches', number, struct.pack('>I2', #kind) .. kind .. seqs)
end

local function list_ended(number, kind, ended_at) -- for `find`, by state, and by state and source
  call('ZADD', P .. 'ended:' .. kind, ended_at, number)
  call('ZADD', P .. 'ended:' .. kind:match('^%a+'), ended_at, number)
end

local function retain(key, keep_until, kind, seqs) -- one entry per call, time, state and source, not per task
  local number = next_number('batch')
  call('ZADD', P .. key, keep_until, number)
  if key == 'retention' then
    call('ZADD', P .. 'retention_ended', at, number)
    list_ended(number, kind, at)
  end
  write_batch(number, kind, table.concat(seqs))
end

closing[#closing + 1] = function()
  for name, seqs in pairs(retained) do
    local keep_until, kind = name:match('^([^:]+):(.*)$')
    retain('retention', keep_until, kind, seqs)
  end
  for keep_until, seqs in pairs(results) do retain('result_retention', keep_until, '', seqs) end
end
