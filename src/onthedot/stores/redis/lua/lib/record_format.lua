-- Records: `task` is the request, written once; `history` is what has happened since, if anything has.
-- task: due i8, added I6, length of head I2, head = msgpack [digest, lane, unique, links], uuid (see uuid_format.py), body.
-- history: length of head I2, length of error I4, head (see history_of), error, result. The head has 15 fields; that
-- of a task that waits, that a session subscribes to, or that was revived, has wait, wait_until, subscribed and revives, too.
-- links: [uuid of the flow as text, counters that its end increments, wait]; a wait: [[[counter, value], …], timeout, delay, requires].
-- uses: records
local heads = {} -- packed → unpacked: most tasks of a call have the same

local function to_wait(fields)
  local counters, timeout, delay, requires = unpack(fields, 1, 4)
  return {counters = counters, timeout = timeout, delay = delay, requires = requires}
end

local function to_links(fields)
  local flow, increments, waits = unpack(fields, 1, 3)
  return {flow = flow, increments = increments, waits = waits and to_wait(waits)}
end

local function read_head(seq, task) -- without times and uuid, which begins at the second result
  local body = 17 + struct.unpack('>I2', task, 15)
  local packed = task:sub(17, body - 1)
  local head = heads[packed]
  if not head then
    head = unpacked(packed)
    if head[4] then head.links = to_links(head[4]) end
    heads[packed] = head
  end
  local digest = head[1]
  local policy = policies[digest] or policy_of(digest)
  local r = {seq = seq, source = policy.s, digest = digest, policy = policy}
  if head[2] then r.lane = head[2] end
  if head[3] then r.unique = head[3] end
  if head.links then r.links = head.links end
  return setmetatable(r, NO_HISTORY), body
end

local function read_record(seq, task, history)
  local r, body = read_head(seq, task)
  r.uuid = uuid_at(task, body)
  r.due, r.added = struct.unpack('>i8I6', task)
  if not history then return r end
  local head_length, error_length = struct.unpack('>I2I4', history)
  local _, head = cmsgpack.unpack_one(history, 6)
  local state, due, reason, retries, crashes, earlier, cancel_requested, settled_fence, session, started, ended,
    keep_until, result_until, stored, hops, wait, wait_until, subscribed, revives = unpack(head, 1, 19)
  local _ = #reason + retries + crashes + earlier + settled_fence + stored + hops -- raises, unless they have these types
  r.fresh = false
  r.state = state
  r.due = due or r.due
  r.reason, r.retries, r.crashes, r.earlier, r.hops = reason, retries, crashes, earlier, hops
  r.cancel_requested = cancel_requested
  r.settled_fence = settled_fence
  r.session = session
  r.started = started
  r.ended = ended
  r.keep_until = keep_until
  r.result_until = result_until
  r.subscribed = subscribed
  r.revives = revives or 0
  if state == 'waiting' then
    r.wait, r.wait_until = wait and to_wait(wait) or r.links.waits, wait_until
    local _ = #r.wait.counters + r.wait.delay
  end
  if stored >= 2 then r.error = history:sub(7 + head_length, 6 + head_length + error_length) end
  if stored % 2 == 1 then r.result = history:sub(7 + head_length + error_length) end
  return r
end

local function to_damaged(seq, task, history) -- what can be read of it; without a uuid, only its bytes can be kept
  local has_head, r = pcall(read_head, seq, task)
  if not has_head then r = setmetatable({seq = seq, source = UNKNOWN_SOURCE, policy = {}}, NO_HISTORY) end
  local has_uuid, uuid = pcall(uuid_at, task, #task >= 16 and 17 + struct.unpack('>I2', task, 15))
  if has_uuid then r.uuid = uuid end
  local policy = {undecodable = true}
  for field, value in pairs(r.policy) do policy[field] = value end
  r.policy = policy
  r.fresh = false
  r.due, r.added = at, at
  if #task >= 14 then r.due, r.added = struct.unpack('>i8I6', task) end
  r.raw = pack({task, history or ''})
  return r
end

local function to_record(seq, task, history) -- never raises: one bad record must not stop the others
  local ok, r = pcall(read_record, seq, task, history)
  return ok and r or to_damaged(seq, task or '', history)
end

local function packed_wait(wait)
  return wait and '\148' .. pack(wait.counters, wait.timeout, wait.delay, wait.requires) or pack(nil)
end

local function history_of(r, due) -- due: nil if it has not changed
  local error, stored = r.error or '', (r.result and 1 or 0) + (r.error and 2 or 0)
  local head = pack( -- with the number of a msgpack array before it; a table with nil would become a map
    r.state, due, r.reason, r.retries, r.crashes, r.earlier, r.cancel_requested or false, r.settled_fence, r.session,
    r.started, r.ended, r.keep_until, r.result_until, stored, r.hops)
  if r.wait or r.subscribed or r.revives > 0 then
    local is_first = r.links and r.wait == r.links.waits -- the wait of a task that has not started is in its links
    head = '\220\0\19' .. head .. packed_wait(not is_first and r.wait) .. pack(r.wait_until, r.subscribed, r.revives)
  else
    head = '\159' .. head
  end
  return struct.pack('>I2I4', #head, #error) .. head .. error .. (r.result or '')
end

local function save(r) buffer(sets, HISTORY, r.seq, history_of(r, r.due)) end

local function load(seq)
  flush()
  local task = call('HGET', TASK, seq)
  return task and to_record(seq, task, call('HGET', HISTORY, seq))
end

local function set_wait(r, wait)
  r.state, r.wait = 'waiting', wait
  r.wait_until = wait.timeout and math.ceil(now + wait.timeout)
end

local function clear_wait(r, state) -- state: of a chore; nil: its place decides
  r.state, r.wait, r.wait_until = state, nil, nil
end

local function after_requeue(r, o) -- the history after an outcome that is no end
  r.reason = 'due'
  r.retries = r.retries + (o.counted and 1 or 0)
  if o.reset_crashes then r.earlier, r.crashes = r.earlier + r.crashes, 0 end
  r.settled_fence = o.fence
  r.session = o.session
  r.state = nil -- a lifted task has stored its place here
  if o.wait then set_wait(r, o.wait) end
end

local function after_crash(r, started, counted)
  r.crashes = r.crashes + (counted and 1 or 0)
  r.reason = r.crashes >= (r.policy.m or 3) and not r.cancel_requested and 'crashed' or 'crash'
  r.started = started
end
