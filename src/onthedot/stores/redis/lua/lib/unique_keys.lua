-- Unique keys, and a new task that replaces a pending one.
-- uses: insert places
local function key_holder(source, unique)
  local held = call('HGET', P .. 'unique_keys', source .. '/' .. unique)
  if not held then return nil end
  local uuid, held_until = unpack(unpacked(held), 1, 2) -- held_until: false for a key that is held until the task ends
  return (not held_until or held_until > now) and uuid or nil
end

local function hold_key(uuid, source, unique, held_until)
  local field = source .. '/' .. unique
  call('HSET', P .. 'unique_keys', field, pack({uuid, held_until or false}))
  if held_until then call('ZADD', P .. 'unique_key_until', held_until, field) else call('ZREM', P .. 'unique_key_until', field) end
end

local function key_until(r) return r.policy.u and r.added + r.policy.u end

local INHERITED = {
  'seq', 'uuid', 'added', 'reason', 'retries', 'crashes', 'earlier', 'cancel_requested', 'settled_fence', 'session',
  'started', 'error', 'hops', 'revives', 'subscribed',
}

local function replace(seq, new, body)
  local old = load(seq)
  if not old or old.ended or UNQUEUED_REASONS[old.reason] or old.policy.undecodable or old.links or old.wait or call('HEXISTS', LEASED, seq) == 1 then return end
  local place = find_place(old)
  if not place then return end -- it is being settled
  leave(old, place)
  clear_wait(new)
  new.links = nil
  for _, field in ipairs(INHERITED) do new[field] = old[field] end
  local number = number_of(seq)
  count_records(old.digest, number, number, -1)
  count_records(new.digest, number, number, 1)
  hold_key(new.uuid, new.source, new.unique, key_until(new))
  if not old.fresh then save(new) end
  buffer(sets, TASK, seq, task_prefix(new) .. new.uuid .. body)
  enter(new, next_place(new))
end

function take_key(r, uuid, body) -- returns the uuid of the task that holds the key; a new task may replace that task
  local holder = key_holder(r.source, r.unique)
  if not holder then return hold_key(uuid, r.source, r.unique, key_until(r)) end
  flush()
  local seq = r.policy.k and call('HGET', IDS, holder)
  if seq then replace(seq, r, body) end
  return holder
end
