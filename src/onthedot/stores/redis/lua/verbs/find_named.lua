-- find_named: find tasks by the first bytes of a uuid of version 7 or 8, whose time is near the order of adding.
-- KEYS[1]: prefix. ARGV: now, first bytes of the stored uuid, the time of the uuid in ms, the most records to read.
-- Returns: seqs. It bisects the blocks by the time of their first task and reads on from there: a task that was added out of order by more
--   than a block is not found.
-- uses: prelude
local wanted, time, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local function uuid_of(task)
  if #task < 17 then return '' end
  local ok, uuid = pcall(uuid_at, task, 17 + struct.unpack('>I2', task, 15))
  return ok and uuid or ''
end

local function time_of(block) -- of the uuid of its first task, or when that was added
  for number = block * 1000, block * 1000 + 999 do
    local task = call('HGET', TASK, struct.pack('>I6', number))
    if task then
      local uuid = uuid_of(task)
      local version = uuid:byte(1) == 0 and #uuid == 17 and math.floor(uuid:byte(8) / 16)
      if version == 7 or version == 8 then return (struct.unpack('>I6', uuid, 2)) end
      return #task >= 14 and struct.unpack('>I6', task, 9) or 0
    end
  end
  return 0
end

local blocks = {}
for i, block in ipairs(call('HKEYS', SEQ_BLOCKS)) do blocks[i] = tonumber(block) end
table.sort(blocks)
local low, high = 1, #blocks + 1 -- the first block that begins at this time or later
while low < high do
  local middle = math.floor((low + high) / 2)
  if time_of(blocks[middle]) < time then low = middle + 1 else high = middle end
end

local found, read = {}, 0
for i = math.max(1, low - 1), #blocks do
  for first = blocks[i] * 1000, blocks[i] * 1000 + 999, 200 do
    if read >= most then return found end
    local seqs = {}
    for number = first, first + 199 do seqs[#seqs + 1] = struct.pack('>I6', number) end
    for j, task in ipairs(read_fields(TASK, seqs)) do
      if task then
        read = read + 1
        if uuid_of(task):sub(1, #wanted) == wanted then found[#found + 1] = seqs[j] end
      end
    end
  end
end
return found
