-- Unique keys, and one task that takes the place of another.
local UNIQUE_KEYS, UNIQUE_KEY_UNTIL = P .. 'unique_keys', P .. 'unique_key_until'

local function key_holder(source, unique) -- until: a key that is held for a time, not until the task ends
  local held = call('HGET', UNIQUE_KEYS, source .. '/' .. unique)
  if not held then return nil end
  held = unpacked(held)
  return (not held[2] or held[2] > now) and held[1] or nil
end

local function hold_key(uuid, source, unique, until_)
  local field = source .. '/' .. unique
  call('HSET', UNIQUE_KEYS, field, pack({uuid, until_ or false}))
  if until_ then call('ZADD', UNIQUE_KEY_UNTIL, until_, field) else call('ZREM', UNIQUE_KEY_UNTIL, field) end
end

local function key_until(r) return r.policy.u and r.added + r.policy.u end

local function replace(seq, new, head, body)
  local old = load(seq)
  if not old or old.ended or CHORE_REASONS[old.why] or call('HEXISTS', LEASED, seq) == 1 then return end
  leave(old, find_place(old))
  exists(old, -1)
  for _, field in ipairs({'seq', 'uuid', 'added', 'why', 'retries', 'crashes', 'earlier', 'cancel', 'settled',
    'session', 'started', 'error', 'hops'}) do
    new[field] = old[field]
  end
  exists(new, 1)
  hold_key(new.uuid, new.source, new.unique, key_until(new))
  if not old.fresh then save(new) end
  write_task(new, head, body)
end

local function take_key(r, head, body) -- answers with who has it; a newcomer may replace that one
  local holder = key_holder(r.source, r.unique)
  if not holder then return hold_key(r.uuid, r.source, r.unique, key_until(r)) end
  flush()
  local seq = r.policy.k and call('HGET', IDS, holder)
  if seq then replace(seq, r, head, body) end
  return holder
end
