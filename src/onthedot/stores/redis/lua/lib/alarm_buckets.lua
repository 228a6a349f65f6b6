-- Alarms in buckets of WIDTH ms: a sorted set (time → seq) each, and `alarms`, the order of the buckets that exist.
-- In one sorted set of a million, each alarm is a walk through memory; a bucket is a short list in most cases.
local function is_first_alarm(time) -- in most cases the name of the first bucket decides
  local name = call('ZRANGE', ALARMS, 0, 0)[1]
  if not name or time < name * WIDTH then return true end
  if time >= (name + 1) * WIDTH then return false end
  local first = call('ZRANGE', BUCKET .. name, 0, 0, 'WITHSCORES')[2]
  return not first or time < tonumber(first)
end

local function set_alarms(buckets) -- number of the bucket → time and seq in turn
  local names, number = {}, 0
  for bucket, list in pairs(buckets) do
    local name, long = string.format('%d', bucket), #list > 60 and ('-'):rep(65)
    names[number + 1], names[number + 2] = name, name
    number = number + 2
    if long then call('ZADD', BUCKET .. name, 0, long) end -- forces the skiplist: a listpack is searched for each member
    call_in_parts('ZADD', BUCKET .. name, list)
    if long then call('ZREM', BUCKET .. name, long) end
  end
  call_in_parts('ZADD', ALARMS, names)
end
