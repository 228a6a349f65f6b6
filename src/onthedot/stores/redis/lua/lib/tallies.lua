-- What a call keeps in mind until its end: counts, numbers, moves, whom to tell.
local NUMBERS = {'seq', 'transitions', 'fence', 'batch', 'chores', 'dead_sessions'}
local counts, blocks, kept, results, numbers, grown = {}, {}, {}, {}, nil, {}
local moves, moved, ends, cancels, reason = {}, 0, {}, {}, '' -- ends, cancels: uuids by session; reason: of the cancels
local closing = {} -- what else is to be saved at the end
local caller -- the session that calls: it looks by itself

local function count(source, state, by)
  local its = counts[source]
  if not its then
    its = {}
    counts[source] = its
  end
  its[state] = (its[state] or 0) + by
end

local function counted(source, state)
  local its = counts[source]
  return (tonumber(call('HGET', TALLY, source .. ':' .. state)) or 0) + (its and its[state] or 0)
end

local function listed(lists, key, what)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  list[#list + 1] = what
end

local function log_transition(state, what) -- its number; of one that is gone, its uuid
  listed(moves, state, what)
  moved = moved + 1
end

local function next_number(name, by)
  if not numbers then
    numbers = {}
    for i, number in ipairs(call('HMGET', SEQUENCES, unpack(NUMBERS))) do numbers[NUMBERS[i]] = tonumber(number) or 0 end
  end
  local number = numbers[name] + (by or 1)
  numbers[name], grown[name] = number, number
  return number
end

local function exists(r, by, number) -- one more in its block of numbers, and of its policy; or one less
  number = number or number_of(r.seq)
  local name = (number - number % 1000) / 1000
  blocks[name] = (blocks[name] or 0) + by
  uses[r.digest] = (uses[r.digest] or 0) + by
end
