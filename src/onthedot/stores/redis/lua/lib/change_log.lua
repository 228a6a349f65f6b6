-- What a call leaves for others: batches to be purged, sums, one row in the change log.
local function retain(what, until_, seqs) -- for a purge: one entry a call and keeping time, not one a task
  local number = next_number('batch')
  call('ZADD', P .. what, until_, number)
  if what == 'retention' then call('ZADD', P .. 'retention_ended', at, number) end
  call('HSET', P .. 'retention_batches', number, table.concat(seqs))
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
  local number = next_number('transitions', moved)
  local row = {'at', at}
  for state, list in pairs(moves) do
    row[#row + 1] = state
    row[#row + 1] = table.concat(list)
  end
  call('XADD', P .. 'changes', 'MINID', '~', math.max(0, number - 100000), number .. '-0', unpack(row))
end
