-- The head of every verb: the keys of the app, the time, and commands with many arguments.
-- KEYS[1]: the prefix of all keys of the app. ARGV[1]: now in ms for tests; "" in production, where the server's time counts.
local P, now = KEYS[1], tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + time[2] / 1000
end
local at = math.floor(now)
local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local BATCH, CHORES = 1000, 100
local SEQUENCES, IDS, TASK, HISTORY, LEASED = P .. 'sequences', P .. 'ids', P .. 'task', P .. 'history', P .. 'leased'
local READY, ALARMS, TALLY, SEQ_BLOCKS = P .. 'ready:', P .. 'alarms', P .. 'tally', P .. 'seq_blocks'
local BUCKET, WIDTH = P .. 'alarms:', 131072 -- ms per bucket, see alarm_buckets.lua
local IDLE_WORKERS = P .. 'idle_workers'

local function call_in_parts(command, key, list)
  for i = 1, #list, 4000 do
    call(command, key, unpack(list, i, math.min(i + 3999, #list)))
  end
end

local function read_fields(key, fields) -- HMGET
  if #fields <= 4000 then return #fields > 0 and call('HMGET', key, unpack(fields)) or {} end
  local found = {}
  for i = 1, #fields, 4000 do
    for _, value in ipairs(call('HMGET', key, unpack(fields, i, math.min(i + 3999, #fields)))) do
      found[#found + 1] = value
    end
  end
  return found
end

local function uuid_at(text, start) -- the first byte is the length of the text, or 0 before sixteen bytes (uuid_format.py)
  local length = text:byte(start)
  local last = start + (length == 0 and 16 or length)
  if last > #text then error('a uuid is cut off') end
  return text:sub(start, last)
end

local function uuids_in(text)
  local uuids, number, start = {}, 0, 1
  while start <= #text do
    local uuid = uuid_at(text, start)
    number = number + 1
    start = start + #uuid
    uuids[number] = uuid
  end
  return uuids
end
