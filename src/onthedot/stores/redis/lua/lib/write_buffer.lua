-- Writes that are put off, so that many go in one command.
local sets, orders, gone, dirty = {}, {}, {}, false -- HSET, ZADD and HDEL to come, by key
local woken, notified, queues = {}, {}, {} -- sources: got something to do; that others must hear of; by key of their queue
local alarms, soonest, soonest_of = {}, nil, nil -- to be set, by bucket; the first of them, and its source

local function buffer(writes, key, first, second)
  local list = writes[key]
  dirty = true
  if not list then
    writes[key] = {first, second} -- of the right size: many stay alone
    return
  end
  local number = #list -- asked once: Lua searches for the end
  list[number + 1], list[number + 2] = first, second
end

local number_texts = {}

local function text_of(number) -- the same moment again and again: numbers are slow to write
  local text = number_texts[number]
  if not text then
    text = string.format(number % 1 == 0 and '%d' or '%.17g', number) -- whole ones are quicker
    number_texts[number] = text
  end
  return text
end

local function flush() -- before anything is read that may be among it
  if not dirty then return end
  for key, list in pairs(gone) do call_in_parts('HDEL', key, list) end
  for key, list in pairs(sets) do call_in_parts('HSET', key, list) end
  if soonest then
    -- here: alarms
    if is_first_alarm(soonest) then notified[soonest_of] = true end
    set_alarms(alarms)
    soonest, alarms = nil, {}
  end
  for key, list in pairs(orders) do
    local source = queues[key]
    if source and not notified[source] and call('EXISTS', key) == 0 then notified[source] = true end
    call_in_parts('ZADD', key, list)
  end
  sets, orders, gone, dirty = {}, {}, {}, false
end
