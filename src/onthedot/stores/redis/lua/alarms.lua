-- Alarms: a bucket for each 65,536 ms, a sorted set (moment → seq); `alarms` is the order of the buckets that there are.
-- In one sorted set of a million every alarm is a walk through the memory; a bucket is a short list, mostly.
local BUCKET, WIDTH = ALARMS .. ':', 65536

local function bucket(moment) return string.format('%d', math.floor(moment / WIDTH)) end

local function rings_first(moment) -- before all that are set; mostly the first bucket's name is enough to say so
  local first = tonumber(call('ZRANGE', ALARMS, 0, 0)[1])
  if not first or moment < first * WIDTH then return true end
  if moment >= (first + 1) * WIDTH then return false end
  return moment < tonumber(call('ZRANGE', BUCKET .. bucket(moment), 0, 0, 'WITHSCORES')[2])
end

local function set_many(key, list) -- a server searches a short list from end to end for each: something long in it makes it none
  local long = ('-'):rep(65)
  call('ZADD', key, 0, long)
  many('ZADD', key, list)
  call('ZREM', key, long)
end

local function set_alarms(buckets) -- by name: moment and seq in turn
  local names, number = {}, 0
  for name, list in pairs(buckets) do
    names[number + 1], names[number + 2], number = name, name, number + 2
    if #list > 60 then set_many(BUCKET .. name, list) else call('ZADD', BUCKET .. name, unpack(list)) end
  end
  many('ZADD', ALARMS, names)
end
