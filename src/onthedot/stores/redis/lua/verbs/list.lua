-- list: read candidates of a list of `find` behind a key; some of them may have left the list.
-- KEYS[1]: prefix. ARGV: now, list, moment and seq of the key (6 bytes; "" if it is the first page), size, name: the source of ready tasks
--   or "", the lane of parked tasks or "", state or state:source of ended ones.
-- Returns: of `ended`, the time and the seqs in one of each batch in turn; of `added`, seqs and 1 if they are the last; of any other list,
--   seq and moment in turn.
-- uses: keys
local name, moment, seq, size, filter = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local MOST_CHECKED = 5000 -- seqs of deleted tasks, too
local function number_of(packed) return (struct.unpack('>I6', packed)) end -- Lua compares strings by the server's locale
local last = seq ~= '' and number_of(seq) or 0

local function behind_key(key) -- the index of the first entry behind the key
  if seq == '' then return 0 end
  local low, high = call('ZCOUNT', key, '-inf', '(' .. moment), call('ZCOUNT', key, '-inf', moment)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if number_of(call('ZRANGE', key, middle, middle)[1]) <= last then low = middle + 1 else high = middle end
  end
  return low
end

local found = {}
local function read_queue(key, most)
  local first = behind_key(key)
  local entries = call('ZRANGE', key, first, first + most - 1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    found[#found + 1], found[#found + 2] = entries[i]:sub(1, 6), entries[i + 1]
  end
  return #entries / 2
end

local lists = {}

function lists.ready()
  local sources = {filter}
  if filter == '' then
    sources = {}
    for _, field in ipairs(call('HKEYS', TALLY)) do sources[#sources + 1] = field:match('^(.*):ready$') end
  end
  for _, source in ipairs(sources) do
    read_queue(READY .. source, size)
    read_queue(SUSPECT .. source, size)
  end
end

function lists.parked() read_queue(filter == '' and P .. 'parked_order' or PARKED .. filter, size) end

function lists.scheduled()
  local first = seq == '' and '-inf' or math.floor(tonumber(moment) / WIDTH)
  local number = 0
  for _, bucket in ipairs(call('ZRANGEBYSCORE', ALARMS, first, '+inf', 'LIMIT', 0, size + 1)) do -- the first may have none behind the key
    if number >= size then break end
    number = number + read_queue(BUCKET .. bucket, size - number)
  end
end

local function by_seq()
  local from = seq == '' and '-' or '(' .. seq
  for _, each in ipairs(call('ZRANGEBYLEX', P .. name, from, '+', 'LIMIT', 0, size)) do
    found[#found + 1], found[#found + 2] = each, '0'
  end
end
lists.waiting, lists.unqueued = by_seq, by_seq

function lists.added() -- from block to block; a block that exists has records
  local blocks, checked = {}, 0
  for i, block in ipairs(call('HKEYS', SEQ_BLOCKS)) do blocks[i] = tonumber(block) end
  table.sort(blocks, function(a, b) return a > b end)
  local newest = seq == '' and tonumber(call('HGET', SEQUENCES, 'seq') or 0) or last - 1
  for _, block in ipairs(blocks) do
    for number = math.min(newest, block * 1000 + 999), block * 1000, -1 do
      local packed = struct.pack('>I6', number)
      if call('HEXISTS', TASK, packed) == 1 or checked == MOST_CHECKED then found[#found + 1] = packed end
      if checked == MOST_CHECKED or #found > size then return {found, 0} end
      checked = checked + 1
    end
  end
  return {found, 1}
end

local function read_batches(key, from, to) -- until there are enough; of a millisecond all, since they are ordered by seq
  local batches, number, previous = call('ZREVRANGEBYSCORE', key, from, to, 'WITHSCORES'), 0, nil
  for i = 1, #batches, 2 do
    local ended_at = batches[i + 1]
    if ended_at ~= previous and number >= size then return end
    local packed = call('HGET', P .. 'retention_batches', batches[i]) or '\0\0'
    local seqs = packed:sub(3 + struct.unpack('>I2', packed))
    found[#found + 1], found[#found + 2] = ended_at, seqs
    number, previous = number + #seqs / 6, ended_at
  end
end

function lists.ended() -- the rest of the millisecond of the key, then what ended before
  local key, from = P .. 'ended:' .. filter, '+inf'
  if seq ~= '' then
    read_batches(key, moment, moment)
    from = '(' .. moment
  end
  local first = call('ZREVRANGEBYSCORE', key, from, '-inf', 'WITHSCORES', 'LIMIT', 0, size)
  if #first > 0 then read_batches(key, from, first[#first]) end -- a batch has one task at least
end

return lists[name]() or found
