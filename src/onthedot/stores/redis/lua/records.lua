-- A record is what was asked (task, written once) and what has happened since (past, if anything has).
-- Its number (seq) is six bytes, so that their order is the numbers'. A policy is kept once, by its digest.
-- task: due i8, added I6, length of head I2, head = msgpack [uuid, source, policy, lane, unique], body.
-- past: length of head I2, of error I4, head (see past_of), error, result.
local ENDING = {cancel = true, expired = true, crashed = true, stray = true} -- a chore's: it must end
local POLICIES, policies, uses, texts = P .. 'policies', {}, {}, {}

local function number_of(seq) return (struct.unpack('>I6', seq)) end -- texts are compared by the server's locale

local function seqs_in(text)
  local seqs = {}
  for i = 1, #text, 6 do seqs[#seqs + 1] = text:sub(i, i + 5) end
  return seqs
end

local function policy_of(digest)
  local policy = policies[digest]
  if not policy then
    texts[digest] = texts[digest] or call('HGET', POLICIES, digest)
    policy = cjson.decode(texts[digest])
    policies[digest] = policy
  end
  return policy
end

local FRESH = {why = 'due', retries = 0, crashes = 0, earlier = 0, settled = 0, fresh = true}
FRESH.__index = FRESH -- what most records say is said once: small tables are quick to make

local function to_record(seq, asked, past)
  local due, added = struct.unpack('>i8I6', asked)
  local _, head = cmsgpack.unpack_one(asked, 16)
  local digest = head[3]
  local r = setmetatable({
    seq = seq, due = due, added = added, uuid = head[1], source = head[2], digest = digest,
    policy = policies[digest] or policy_of(digest), lane = head[4], unique = head[5],
  }, FRESH)
  if not past then return r end
  r.fresh = false
  local length, wrong = struct.unpack('>I2I4', past)
  local _, h = cmsgpack.unpack_one(past, 6)
  r.state, r.due, r.why, r.retries, r.crashes, r.earlier = h[1] or nil, h[2] or due, h[3], h[4], h[5], h[6]
  r.cancel, r.settled, r.session, r.started = h[7], h[8], h[9] or nil, h[10] or nil
  r.ended, r.keep_until, r.result_until = h[11] or nil, h[12] or nil, h[13] or nil
  if h[14] >= 2 then r.error = past:sub(7 + length, 6 + length + wrong) end
  if h[14] % 2 == 1 then r.result = past:sub(7 + length + wrong) end
  return r
end

local function past_of(r, due)
  local error, has = r.error or '', (r.result and 1 or 0) + (r.error and 2 or 0)
  local head = pack({
    r.state or false, due, r.why, r.retries, r.crashes, r.earlier, r.cancel or false, r.settled, r.session or false,
    r.started or false, r.ended or false, r.keep_until or false, r.result_until or false, has,
  })
  return struct.pack('>I2I4', #head, #error) .. head .. error .. (r.result or '')
end

local function save(r) later(sets, PAST, r.seq, past_of(r, r.due)) end

local function load(seq)
  flush()
  local asked = call('HGET', TASK, seq)
  return asked and to_record(seq, asked, call('HGET', PAST, seq))
end

local function rank(r) return r.due - (r.policy.b or 0) end
local function cost(r) return r.policy.c or 1 end
local function suspect(r) return r.crashes + 1 >= (r.policy.m or 3) end
local function queue(r) return (suspect(r) and SUSPECT or READY) .. r.source end
local function member(r) return (r.lane or r.policy.x) and r.seq .. 'x' or r.seq end -- x: look at it when it is taken
local function expiry(r) return r.policy.x and not r.started and r.due + r.policy.x or nil end -- what never started
local function due_in(after) return after > 0 and math.ceil(now + after) or at end
