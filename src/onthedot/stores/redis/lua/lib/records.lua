-- A record is what was asked (task, written once) and what has happened since (past, if anything has).
-- task: due i8, added I6, length of head I2, head = msgpack [policy, lane, unique], uuid (see uuids.py), body.
-- past: length of head I2, of error I4, head (see past_of), error, result.
local NO_HISTORY = {why = 'due', retries = 0, crashes = 0, earlier = 0, settled = 0, hops = 0, fresh = true}
NO_HISTORY.__index = NO_HISTORY -- what most records say is said once: small tables are quick to make

local function headed(seq, asked) -- what was asked, without its times: enough for one that ends at the first try
  local before, head = cmsgpack.unpack_one(asked, 16)
  local digest = head[1]
  local policy = policies[digest] or policy_of(digest)
  local r = {seq = seq, uuid = uuid_at(asked, before + 1), source = policy.s, digest = digest, policy = policy}
  if head[2] then r.lane = head[2] end
  if head[3] then r.unique = head[3] end
  return setmetatable(r, NO_HISTORY)
end

local function to_record(seq, asked, past)
  local r = headed(seq, asked)
  r.due, r.added = struct.unpack('>i8I6', asked)
  if not past then return r end
  r.fresh = false
  local length, wrong = struct.unpack('>I2I4', past)
  local _, h = cmsgpack.unpack_one(past, 6)
  r.state, r.due, r.why, r.retries, r.crashes, r.earlier = h[1] or nil, h[2] or r.due, h[3], h[4], h[5], h[6]
  r.cancel, r.settled, r.session, r.started = h[7], h[8], h[9] or nil, h[10] or nil
  r.ended, r.keep_until, r.result_until, r.hops = h[11] or nil, h[12] or nil, h[13] or nil, h[15]
  if h[14] >= 2 then r.error = past:sub(7 + length, 6 + length + wrong) end
  if h[14] % 2 == 1 then r.result = past:sub(7 + length + wrong) end
  return r
end

local function history_of(r, due)
  local error, has = r.error or '', (r.result and 1 or 0) + (r.error and 2 or 0)
  local head = pack({
    r.state or false, due, r.why, r.retries, r.crashes, r.earlier, r.cancel or false, r.settled, r.session or false,
    r.started or false, r.ended or false, r.keep_until or false, r.result_until or false, has, r.hops,
  })
  return struct.pack('>I2I4', #head, #error) .. head .. error .. (r.result or '')
end

local function save(r) buffer(sets, HISTORY, r.seq, history_of(r, r.due)) end

local function load(seq)
  flush()
  local asked = call('HGET', TASK, seq)
  return asked and to_record(seq, asked, call('HGET', HISTORY, seq))
end

local function rank(r) return r.due - (r.policy.b or 0) end
local function cost(r) return r.policy.c or 1 end
local function is_suspect(r) return r.crashes + 1 >= (r.policy.m or 3) end
local function queue(r)
  local kind = is_suspect(r) and SUSPECT or READY
  local key = queue_keys[kind][r.source]
  if not key then
    key = kind .. r.source
    queue_keys[kind][r.source] = key
  end
  return key
end
local function member(r) return (r.lane or r.policy.x) and r.seq .. 'x' or r.seq end -- x: look at it when it is taken
local function expiry(r) return r.policy.x and not r.started and r.due + r.policy.x or nil end -- what never started
local function due_in(after) return after > 0 and math.ceil(now + after) or at end
