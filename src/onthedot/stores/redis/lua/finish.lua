-- How every verb that writes ends: counts, one row in the change log, word to those who listen.
local NUMBERS = {'seq', 'moves', 'fence', 'batch', 'chores', 'graves'}
local counts, blocks, kept, results, numbers, grown = {}, {}, {}, {}, nil, {}
local moves, moved, ends, cancels = {}, 0, {}, {}
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

local function move(state, what)
  local list = moves[state]
  if not list then
    list = {}
    moves[state] = list
  end
  list[#list + 1] = what
  moved = moved + 1
end

local function next_number(name, by)
  if not numbers then
    numbers = {}
    for i, number in ipairs(call('HMGET', COUNT, unpack(NUMBERS))) do numbers[NUMBERS[i]] = tonumber(number) or 0 end
  end
  local number = numbers[name] + (by or 1)
  numbers[name], grown[name] = number, number
  return number
end

local function exists(r, by) -- one more in its block of numbers, and of its policy; or one less
  local name = math.floor(number_of(r.seq) / 1000)
  blocks[name] = (blocks[name] or 0) + by
  uses[r.digest] = (uses[r.digest] or 0) + by
end

local function keep(what, until_, seqs) -- for a purge: one entry a call and keeping time, not one a task
  local number = next_number('batch')
  call('ZADD', P .. what, until_, number)
  if what == 'kept' then call('ZADD', P .. 'ends', at, number) end
  call('HSET', P .. 'batches', number, table.concat(seqs))
end

local function add_up(key, amounts, prefix)
  for field, by in pairs(amounts) do
    field = prefix and prefix .. field or field
    local number = by ~= 0 and call('HINCRBY', key, field, by)
    if number == 0 then call('HDEL', key, field) end
    if number and amounts == uses then
      if number == 0 then call('HDEL', POLICIES, field) end
      if number == by then call('HSET', POLICIES, field, texts[field]) end
    end
  end
end

local function log()
  if moved == 0 then return end
  local number = next_number('moves', moved)
  local row = {'at', at}
  for state, list in pairs(moves) do
    row[#row + 1] = state
    row[#row + 1] = state == 'gone' and pack(list) or table.concat(list)
  end
  call('XADD', P .. 'changes', 'MINID', '~', math.max(0, number - 100000), number .. '-0', unpack(row))
end
