-- Alarms: a bucket for each WIDTH ms, a sorted set (moment → seq); `alarms` is the order of the buckets that there are.
-- In one sorted set of a million every alarm is a walk through the memory; a bucket is a short list, mostly.
local function is_first_alarm(moment) -- before all that are set; mostly the first bucket's name is enough to say so
  local name = call('ZRANGE', ALARMS, 0, 0)[1]
  if not name or moment < name * WIDTH then return true end
  if moment >= (name + 1) * WIDTH then return false end
  local first = call('ZRANGE', BUCKET .. name, 0, 0, 'WITHSCORES')[2]
  return not first or moment < tonumber(first)
end

local function set_alarms(buckets) -- by number: moment and seq in turn
  local names, number = {}, 0
  for bucket, list in pairs(buckets) do
    local name, long = string.format('%d', bucket), #list > 60 and ('-'):rep(65)
    names[number + 1], names[number + 2], number = name, name, number + 2
    if long then call('ZADD', BUCKET .. name, 0, long) end -- no short list: a server searches it from end to end for each
    call_in_parts('ZADD', BUCKET .. name, list)
    if long then call('ZREM', BUCKET .. name, long) end
  end
  call_in_parts('ZADD', ALARMS, names)
end
