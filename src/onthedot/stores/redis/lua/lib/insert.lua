-- Insert new tasks. The tasks of a group share source, policy, lane and time, and differ by uuid and body; a task with a
-- unique key is a group of its own. A group is [number of tasks, digest, at, after, lane, unique key, links (see
-- record_format.lua)].
-- uses: force_hashtable next_place record_format counters notify
local take_key -- unique_keys.lua defines it

local function to_new_record(group) -- without seq; for all tasks of the group
  local number, digest, time, after, lane_name, unique, links = unpack(group, 1, 7)
  local policy = policy_of(digest)
  local r = {source = policy.s, digest = digest, policy = policy, due = time or due_in(after), added = at}
  if lane_name then r.lane = lane_name end
  if unique then r.unique = unique end
  if links then
    r.links = to_links(links)
    if r.links.waits then set_wait(r, r.links.waits) end
  end
  return setmetatable(r, NO_HISTORY), number
end

local function packed_links(links)
  return '\147' .. pack(links.flow, links.increments) .. packed_wait(links.waits)
end

local function task_prefix(r) -- the task without uuid and body: the same for a group
  local head = '\145' .. pack(r.digest) -- msgpack arrays of one to four
  if r.links then
    head = '\148' .. pack(r.digest, r.lane, r.unique) .. packed_links(r.links)
  elseif r.unique then
    head = '\147' .. pack(r.digest, r.lane, r.unique)
  elseif r.lane then
    head = '\146' .. pack(r.digest, r.lane)
  end
  return struct.pack('>i8I6I2', r.due, r.added, #head) .. head
end

local function number_tasks(digest, number) -- the first of consecutive seqs
  local last = next_number('seq', number)
  local first = last - number + 1
  if first == 1 then force_hashtable() end
  count_records(digest, first, last, 1)
  return first
end

local function queue_all(r, seqs)
  local key, score = queue(r), text_of(rank(r))
  local suffix, order = (r.lane or r.policy.x) and 'x' or '', {}
  for i = 1, #seqs do
    order[2 * i - 1], order[2 * i] = score, seqs[i] .. suffix
  end
  buffer_list(orders, key, order)
  woken[r.source] = true
end

local function set_all_alarms(r, time, seqs)
  local text, list = text_of(time), {}
  for i = 1, #seqs do
    list[2 * i - 1], list[2 * i] = text, seqs[i]
  end
  buffer_list(alarms, math.floor(time / WIDTH), list)
  if not first_alarm or time < first_alarm then first_alarm, first_alarm_source = time, r.source end
end

local function enter_all(r, place, seqs) -- as `enter` in places.lua; the caller logs the transition
  count(r.source, place, #seqs)
  if place == 'ready' then queue_all(r, seqs) end
  if place == 'waiting' then
    local history, number = history_of(r, r.due), #new_histories
    for i = 1, #seqs do
      new_histories[number + 2 * i - 1], new_histories[number + 2 * i] = seqs[i], history
    end
    begin_wait(r, seqs)
  end
  local time = alarm_of(r, place)
  if time then set_all_alarms(r, time, seqs) end
end

-- uuids, bodies: of the whole call, from `start` on those of the group. known: uuid → true.
local function add_group(group, uuids, bodies, start, known, holders)
  local r, number = to_new_record(group)
  local new = {}
  for i = start + 1, start + number do
    local uuid = uuids[i]
    holders[i] = known[uuid] and uuid or r.unique and take_key(r, uuid, bodies[i]) or ''
    if holders[i] == '' then
      new[#new + 1] = i
      known[uuid] = true
    end
  end
  if #new == 0 then return number end
  local before, prefix = number_tasks(r.digest, #new) - 1, task_prefix(r)
  local seqs, tasks, ids = {}, {}, {}
  for i = 1, #new do
    local uuid, seq = uuids[new[i]], struct.pack('>I6', before + i)
    seqs[i] = seq
    ids[2 * i - 1], ids[2 * i] = uuid, seq
    tasks[2 * i - 1], tasks[2 * i] = seq, prefix .. uuid .. bodies[new[i]]
  end
  if r.links and r.links.flow then
    -- here: flow_index
    local length = #ids -- the buffer may append those of other groups
    closing[#closing + 1] = function() index_flow(r.links.flow, ids, length) end
  end
  buffer_list(sets, IDS, ids)
  buffer_list(sets, TASK, tasks)
  local place = next_place(r)
  local first_ready = place == 'ready' and call('EXISTS', queue(r)) == 0 -- no other task of the source is ready
  if first_ready then notified[r.source] = true end
  enter_all(r, place, seqs)
  log_range(r.source, place, seqs[1], seqs[#seqs], #seqs)
  return number, #new
end

local function add(groups, uuids, bodies) -- for each task "" or the uuid of the existing one; the number of new ones
  flush()
  local known, holders, start, fresh = {}, {}, 0, 0
  for i, seq in ipairs(read_fields(IDS, uuids)) do
    if seq and is_known(seq) then known[uuids[i]] = true end
  end
  for _, group in ipairs(groups) do
    local number, new = add_group(group, uuids, bodies, start, known, holders)
    start = start + number
    fresh = fresh + (new or 0)
  end
  return holders, fresh
end
