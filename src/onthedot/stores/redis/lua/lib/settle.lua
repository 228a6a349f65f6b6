-- Settle: the only end of a task. Outcomes come in groups that share claim, kind and times. Of such a group, tasks that end and
-- have the same shape (equal heads and histories) share one record and end together; any other task is a shape of its own.
-- The first write is a deletion, so that a full server drains.
-- A group: fence, session, uuids, data; state, keep, keep_result of an end, or after, counted,
-- reset_crashes, wait of a requeue; effects.
-- uses: leases requeue finish journal insert
local function late_verdict(fence, session, seq)
  local r = load(seq)
  return r and r.settled_fence == fence and r.session == session and 'r' or 'l'
end

local function requeue_outcome(r, o, started, error)
  if #error > 0 then
    local attempt = r.earlier + 1 + r.retries + r.crashes
    write_note(r.seq, 'error', tostring(attempt), error, o.fence, o.session)
    r.error = error
  end
  after_requeue(r, o)
  if o.after or o.wait then r.started = started end
  requeue(r, o.after)
end

local function add_effects(o) add(o.effects.groups, o.effects.uuids, o.effects.bodies) end

local function settle_shape(r, o, started, tasks) -- tasks: seqs, uuids, data and, if not retained, tasks; r: the record that they share
  local number = #tasks.seqs
  local chore = release(r, number)
  local was_suspect = not chore and is_suspect(r)
  if chore then
    started = r.started
    call_in_parts('ZREM', P .. 'unqueued', tasks.seqs)
  end
  if o.wait and o.effects then add_effects(o) end -- before: an aborted script leaves no wait for tasks that do not exist
  if o.state then
    finish(r, o, started, tasks)
  elseif chore and (r.reason ~= 'lifted' or o.wait) then
    r.settled_fence, r.session = o.fence, o.session
    queue_chore(r, r.reason)
  else
    requeue_outcome(r, o, started, tasks.data[1])
  end
  if was_suspect then call('HINCRBY', SESSION .. o.session, 'suspects', -number) end
  was_suspect = was_suspect or is_suspect(r)
  if r.lane or was_suspect or has_limits() then release_capacity(r, was_suspect) end
  if o.effects and not o.wait then add_effects(o) end
end

local function held_by(o, claim, seqs) -- the indexes of the seqs that this claim still holds, each once; and of the others
  local held, late = {}, {}
  local holders = claim and claim[1] == o.session and read_fields(LEASED, seqs) or {}
  local seen, fence = {}, tostring(o.fence)
  for i = 1, #seqs do
    local seq = seqs[i]
    if holders[i] == fence and not seen[seq] then
      held[#held + 1] = i
      seen[seq] = true
    else
      late[#late + 1] = i
    end
  end
  return held, late
end

local function shapes_of(o, held, tasks, histories) -- lists of indexes
  local shapes, by_key, last = {}, {}, nil
  for j = 1, #held do
    local i = held[j]
    local task, history = tasks[i] or '', histories[i] or ''
    if not o.state or #task < 16 then
      shapes[#shapes + 1] = {i}
    else
      if not last or history ~= last.history or task:sub(15, last.head_end) ~= last.head then
        local head_end = 16 + struct.unpack('>I2', task, 15)
        local head = task:sub(15, head_end)
        local key = head .. history
        last = by_key[key]
        if not last then
          last = {head = head, head_end = head_end, history = history}
          by_key[key], shapes[#shapes + 1] = last, last
        end
      end
      last[#last + 1] = i
    end
  end
  return shapes
end

local function chosen(list, indexes)
  if #indexes == #list then return list end
  local found = {}
  for i = 1, #indexes do found[i] = list[indexes[i]] end
  return found
end

local function settle(o, verdicts)
  flush()
  local claim, seqs, before = claim_of(o.fence), read_fields(IDS, o.uuids), #verdicts
  for i = 1, #seqs do seqs[i] = seqs[i] or '' end
  local held, late = held_by(o, claim, seqs)
  local tasks, histories = read_fields(TASK, seqs), read_fields(HISTORY, seqs)
  local shapes = shapes_of(o, held, tasks, histories)
  for _, shape in ipairs(shapes) do
    local i = shape[1]
    shape.record = to_record(seqs[i], tasks[i], histories[i])
  end
  if #held > 0 then release_leases(o.fence, o.session, chosen(seqs, held)) end
  for _, shape in ipairs(shapes) do
    local settled = {seqs = chosen(seqs, shape), uuids = chosen(o.uuids, shape), data = chosen(o.data, shape)}
    if o.keep <= 0 then settled.tasks = chosen(tasks, shape) end
    settle_shape(shape.record, o, claim[2], settled)
  end
  for j = 1, #held do verdicts[before + held[j]] = 'o' end
  for j = 1, #late do verdicts[before + late[j]] = late_verdict(o.fence, o.session, seqs[late[j]]) end
end
