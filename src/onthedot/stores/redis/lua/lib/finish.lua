-- The end of a task: it is retained for a time, or deleted at once.
-- uses: unique_keys
local retained, results = {}, {} -- time → seqs: tasks, and results that are dropped before their tasks

local function forget_task(r)
  buffer(deletions, IDS, r.uuid)
  buffer(deletions, TASK, r.seq)
  buffer(deletions, HISTORY, r.seq)
  local number = number_of(r.seq)
  call('DEL', P .. 'journal:' .. number)
  count_records(r.digest, number, number, -1)
end

local function free_key(r)
  if not r.unique or r.policy.u then return end
  local field = r.source .. '/' .. r.unique
  local held = call('HGET', UNIQUE_KEYS, field)
  if held and unpacked(held)[1] == r.uuid then call('HDEL', UNIQUE_KEYS, field) end
end

local function result_until(o, result) -- if the result is kept for a time of its own
  return o.keep_result and result and #result > 0 and at + math.min(o.keep, o.keep_result) or nil
end

local function ended_history(r, o, started, keep_result_until) -- without the result
  local shared = r.fresh and not r.error -- the same for all tasks of the group that end at their first attempt
  local packed = shared and o.histories[keep_result_until or 0]
  if packed then return packed end
  local result = r.result
  r.state, r.settled_fence, r.session = o.state, o.fence, o.session
  r.started, r.ended, r.keep_until, r.result_until = started, at, at + o.keep, keep_result_until
  packed = history_of(r, not r.fresh and r.due or nil)
  packed = packed:sub(1, #packed - #(result or ''))
  if shared then o.histories[keep_result_until or 0] = packed end
  return packed
end

local function finish(r, o, started) -- o: the group of outcomes, see settle.lua; r.result and r.error are set
  free_key(r)
  if r.policy.r then append(ended, r.policy.r, r.uuid) end
  if o.keep <= 0 then
    log_transition('gone:' .. o.state .. ':' .. r.source, r.uuid)
    return forget_task(r)
  end
  count(r.source, o.state, 1)
  log_transition(o.state, r.seq)
  append(retained, at + o.keep, r.seq)
  local keep_result_until = result_until(o, r.result)
  if keep_result_until and o.keep_result < o.keep then append(results, keep_result_until, r.seq) end
  buffer(sets, HISTORY, r.seq, ended_history(r, o, started, keep_result_until) .. (r.result or ''))
end

local function retain(key, keep_until, seqs) -- one entry per call and time, not per task
  local number = next_number('batch')
  call('ZADD', P .. key, keep_until, number)
  if key == 'retention' then call('ZADD', P .. 'retention_ended', at, number) end
  call('HSET', P .. 'retention_batches', number, table.concat(seqs))
end

closing[#closing + 1] = function()
  for keep_until, seqs in pairs(retained) do retain('retention', keep_until, seqs) end
  for keep_until, seqs in pairs(results) do retain('result_retention', keep_until, seqs) end
end
