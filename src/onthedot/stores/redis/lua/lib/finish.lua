-- The end of a task: kept for a time, or gone at once.
local function forget_task(r)
  buffer(gone, IDS, r.uuid)
  buffer(gone, TASK, r.seq)
  buffer(gone, HISTORY, r.seq)
  call('DEL', P .. 'journal:' .. number_of(r.seq))
  exists(r, -1)
end

local function free_key(r)
  if not r.unique or r.policy.u then return end
  local field = r.source .. '/' .. r.unique
  local held = call('HGET', UNIQUE_KEYS, field)
  if held and unpacked(held)[1] == r.uuid then call('HDEL', UNIQUE_KEYS, field) end
end

local function result_until(o, data) -- a time of its own, if it is kept for less than its task
  return o.keep_result and data and #data > 0 and at + math.min(o.keep, o.keep_result) or nil
end

local function end_task(r, o, started) -- o: the outcome's group; r.result and r.error are set
  free_key(r)
  if r.policy.r then listed(ends, r.policy.r, r.uuid) end
  if o.keep <= 0 then
    log_transition('gone:' .. o.state .. ':' .. r.source, r.uuid)
    return forget_task(r)
  end
  count(r.source, o.state, 1)
  log_transition(o.state, r.seq)
  listed(kept, at + o.keep, r.seq)
  r.result_until = result_until(o, r.result)
  if r.result_until and o.keep_result < o.keep then listed(results, r.result_until, r.seq) end
  r.state, r.settled, r.session, r.started, r.ended, r.keep_until = o.state, o.fence, o.session, started, at, at + o.keep
  buffer(sets, HISTORY, r.seq, history_of(r, not r.fresh and r.due))
end
