-- Buffered writes: the writes of one call to one key become one command. `flush` comes before a read that may depend on them.
-- uses: keys
local sets, orders, deletions = {}, {}, {} -- HSET, ZADD and HDEL: key → arguments
local new_histories = {} -- seq and history in turn, of tasks that are new
local unlinked = {} -- flow → seqs of tasks that are deleted
local alarms = {} -- bucket → time and seq in turn
local first_alarm, first_alarm_source
local dirty = false
local woken = {} -- sources that got ready tasks or capacity in this call
local notified = {} -- sources that the hint to all workers names
local recheck = false -- the hint tells all workers to claim again: a chore or schedule, of no source
local wait_over = false -- a counter has reached a value that a task waits for: any turn ends the wait
local raised, awaited = {}, {} -- flow counters, see counters.lua
local caller -- the session that calls: it needs no hint
local ended = {} -- session that waits for ends → uuids
local closing = {} -- functions with further writes at the end of the call
local queue_sources = {} -- key of a ready queue → its source

local function buffer(writes, key, first, second)
  local list = writes[key]
  dirty = true
  if not list then
    writes[key] = {first, second} -- many lists stay this short: no table grows
    return
  end
  local number = #list -- read once: Lua searches for the end
  list[number + 1], list[number + 2] = first, second
end

local function buffer_list(writes, key, list) -- the list belongs to the buffer from now on
  local before = writes[key]
  dirty = true
  if not before then
    writes[key] = list
    return
  end
  local number = #before
  for i = 1, #list do before[number + i] = list[i] end
end

local number_texts = {}

local function text_of(number) -- memoized: the same times recur, and formatting a number is slow
  local text = number_texts[number]
  if not text then
    text = string.format(number % 1 == 0 and '%d' or '%.17g', number) -- %d is faster
    number_texts[number] = text
  end
  return text
end

local function flush() -- deletions first: after one, a full server allows the other writes of the script
  if not dirty then return end
  for flow, seqs in pairs(unlinked) do -- before its record: else an aborted script leaves it in the index
    call_in_parts('SREM', P .. 'flow:' .. flow, seqs)
    call_in_parts('SREM', P .. 'flows', seqs)
  end
  for key, list in pairs(deletions) do call_in_parts('HDEL', key, list) end
  local ids, histories = sets[IDS], sets[HISTORY]
  sets[IDS], sets[HISTORY] = nil, nil
  for key, list in pairs(sets) do call_in_parts('HSET', key, list) end
  call_in_parts('HSET', HISTORY, new_histories)
  if ids then call_in_parts('HSET', IDS, ids) end -- a known uuid has a record, also if the script is aborted here
  if histories then call_in_parts('HSET', HISTORY, histories) end -- last: the new tasks of an outcome exist before it is written
  if first_alarm then
    -- here: alarm_buckets
    if is_first_alarm(first_alarm) then notified[first_alarm_source] = true end
    set_alarms(alarms)
    first_alarm, alarms = nil, {}
  end
  for key, list in pairs(orders) do
    local source = queue_sources[key]
    if source and not notified[source] and call('EXISTS', key) == 0 then notified[source] = true end
    call_in_parts('ZADD', key, list)
  end
  sets, orders, deletions, new_histories, unlinked, dirty = {}, {}, {}, {}, {}, false
end
