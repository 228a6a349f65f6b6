-- What every verb begins with: the app's keys, the time, and writes that are put off so that many go in one command.
-- KEYS[1]: the prefix of all keys of an app. ARGV[1]: now in ms; "" in production: then it is the server's.
local P, now = KEYS[1], tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + time[2] / 1000
end
local at = math.floor(now)
local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack
local BATCH, CHORES = 1000, 100
local COUNT, IDS, TASK, PAST, HELD = P .. 'count', P .. 'ids', P .. 'task', P .. 'past', P .. 'held'
local CLAIMS, LEFT, CLAIMS_OF = P .. 'claims', P .. 'left', P .. 'claims:'
local READY, SUSPECT, PARKED, SHUT = P .. 'ready:', P .. 'suspect:', P .. 'parked:', P .. 'shut'
local ALARMS, CHORE, TALLY, BLOCKS = P .. 'alarms', P .. 'chores', P .. 'tally', P .. 'blocks'
local BUCKET, WIDTH = P .. 'alarms:', 131072 -- ms of alarms that are kept together: see alarms.lua
local WAITING = P .. 'waiting'

local function many(command, key, list)
  for i = 1, #list, 4000 do
    call(command, key, unpack(list, i, math.min(i + 3999, #list)))
  end
end

local function several(key, fields) -- HMGET
  if #fields <= 4000 then return #fields > 0 and call('HMGET', key, unpack(fields)) or {} end
  local found = {}
  for i = 1, #fields, 4000 do
    for _, value in ipairs(call('HMGET', key, unpack(fields, i, math.min(i + 3999, #fields)))) do
      found[#found + 1] = value
    end
  end
  return found
end

local function uuid_at(text, place) -- its first byte: how many follow, or 0: the usual sixteen (see uuids.py)
  local length = text:byte(place)
  return text:sub(place, place + (length == 0 and 16 or length))
end

local function uuids_in(text)
  local uuids, number, place = {}, 0, 1
  while place <= #text do
    local uuid = uuid_at(text, place)
    number, place = number + 1, place + #uuid
    uuids[number] = uuid
  end
  return uuids
end
