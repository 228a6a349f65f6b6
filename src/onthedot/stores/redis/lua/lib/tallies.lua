-- Sums of a call, written once at its end: tasks per source and state, records per block and policy. And sequences.
-- uses: policies
local counts, blocks = {}, {}

local function count(source, state, by)
  local states = counts[source]
  if not states then
    states = {}
    counts[source] = states
  end
  states[state] = (states[state] or 0) + by
end

local function counted(source, state)
  local states = counts[source]
  return (tonumber(call('HGET', TALLY, source .. ':' .. state)) or 0) + (states and states[state] or 0)
end

local function append(lists, key, value)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  list[#list + 1] = value
end

local function next_number(name, by) return call('HINCRBY', SEQUENCES, name, by or 1) end

local function count_records(digest, first, last, by) -- by: 1 or -1
  for block = math.floor(first / 1000), math.floor(last / 1000) do
    local number = math.min(last, block * 1000 + 999) - math.max(first, block * 1000) + 1
    blocks[block] = (blocks[block] or 0) + by * number
  end
  policy_uses[digest] = (policy_uses[digest] or 0) + by * (last - first + 1)
end

local function add_up(key, amounts, prefix)
  for field, by in pairs(amounts) do
    field = prefix and prefix .. field or field
    local number = by ~= 0 and call('HINCRBY', key, field, by)
    if number == 0 then call('HDEL', key, field) end
    if number and amounts == policy_uses then
      if number == 0 then call('HDEL', POLICIES, field) end
      if number == by then call('HSET', POLICIES, field, policy_texts[field]) end
    end
  end
end

local function write_tallies()
  local unknown = counts[UNKNOWN_SOURCE] -- where such a task was counted before is not known
  if unknown then counts[UNKNOWN_SOURCE] = {failed = unknown.failed, cancelled = unknown.cancelled} end
  for source, states in pairs(counts) do add_up(TALLY, states, source .. ':') end
  add_up(SEQ_BLOCKS, blocks)
  add_up(P .. 'policy_uses', policy_uses)
end
