-- Buffered writes: the writes of one call to one key become one command. `flush` comes before a read that may depend on them.
-- uses: prelude
local sets, orders, deletions = {}, {}, {} -- HSET, ZADD and HDEL: key → arguments
local alarms = {} -- bucket → time and seq in turn
local first_alarm, first_alarm_source
local dirty = false
local woken = {} -- sources that got ready tasks or capacity in this call
local notified = {} -- sources that the hint to all workers names
local recheck = false -- the hint tells all workers to claim again: a chore or schedule, of no source
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
  for key, list in pairs(deletions) do call_in_parts('HDEL', key, list) end
  local ids = sets[IDS]
  sets[IDS] = nil
  for key, list in pairs(sets) do call_in_parts('HSET', key, list) end
  if ids then call_in_parts('HSET', IDS, ids) end -- last: a known uuid has a record, also if the script is aborted
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
  sets, orders, deletions, dirty = {}, {}, {}, false
end
