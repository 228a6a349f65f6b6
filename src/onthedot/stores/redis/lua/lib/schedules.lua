-- Schedules: msgpack [definition_digest, next_at, rev, paused, last_at, runs, incoming] by name, the rule apart: it is opaque.
local SCHEDULES, SCHEDULE_RULES, SCHEDULE_DUE = P .. 'schedules', P .. 'schedule_rules', P .. 'schedule_due'

local function schedule(name)
  local packed = call('HGET', SCHEDULES, name)
  return packed and unpacked(packed)
end

local function write_schedule(name, s, rule)
  call('HSET', SCHEDULES, name, pack({s[1], s[2] or false, s[3], s[4] or false, s[5] or false, s[6], s[7] or false}))
  if rule then call('HSET', SCHEDULE_RULES, name, rule) end
  if s[2] and not s[4] then call('ZADD', SCHEDULE_DUE, s[2], name) else call('ZREM', SCHEDULE_DUE, name) end
end
