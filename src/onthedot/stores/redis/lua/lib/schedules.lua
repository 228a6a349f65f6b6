-- Schedules: msgpack [definition_digest, next_at, rev, paused, last_at, runs, incoming] by name; the opaque rule apart.
-- uses: prelude
local SCHEDULES, SCHEDULE_RULES, SCHEDULE_DUE = P .. 'schedules', P .. 'schedule_rules', P .. 'schedule_due'

local function load_schedule(name)
  local read, fields = pcall(unpacked, call('HGET', SCHEDULES, name))
  if not read or type(fields) ~= 'table' then return nil end -- missing or undecodable: the next declaration writes it anew
  local digest, next_at, rev, paused, last_at, runs, incoming = unpack(fields, 1, 7)
  return {
    definition_digest = digest, next_at = next_at, rev = rev, paused = paused, last_at = last_at, runs = runs,
    incoming = incoming,
  }
end

local function save_schedule(name, s, rule)
  call('HSET', SCHEDULES, name, pack({
    s.definition_digest, s.next_at or false, s.rev, s.paused or false, s.last_at or false, s.runs, s.incoming or false,
  }))
  if rule then call('HSET', SCHEDULE_RULES, name, rule) end
  if s.next_at and not s.paused then call('ZADD', SCHEDULE_DUE, s.next_at, name) else call('ZREM', SCHEDULE_DUE, name) end
end
