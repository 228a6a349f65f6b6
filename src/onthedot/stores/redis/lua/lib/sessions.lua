-- Who is here, until when, and what becomes of what they hold.
local WORKERS, SESSION_LEASES, DEAD_SESSIONS, SESSION, CANCEL_REQUESTS = P .. 'workers', P .. 'session_leases', P .. 'dead_sessions', P .. 'session:', P .. 'cancel_requests:'
local claims = {}

local function claim_of(fence)
  local claim = claims[fence]
  if claim == nil then
    local packed = call('HGET', CLAIMS, fence)
    claim = packed and unpacked(packed)
    claims[fence] = claim
  end
  return claim
end

local function drop_claim(fence, session)
  call('HDEL', CLAIMS, fence)
  call('HDEL', CLAIM_REMAINING, fence)
  call('SREM', CLAIMS_OF .. session, fence)
end

local function release_leases(fence, session, seqs) -- the claim holds them no more
  call_in_parts('HDEL', LEASED, seqs)
  if call('HINCRBY', CLAIM_REMAINING, fence, -#seqs) <= 0 then drop_claim(fence, session) end
end

local function leased_under(fence) -- what a claim still holds, in the order of taking
  local claim, seqs = claim_of(fence), {}
  if not claim then return seqs end
  local all = seqs_in(claim[3])
  for i, holder in ipairs(read_fields(LEASED, all)) do
    if tonumber(holder) == fence then seqs[#seqs + 1] = all[i] end
  end
  return seqs
end

local function hold(fence, session, seqs) -- one entry for all that a claim took
  local held, text = {}, tostring(fence) -- once: numbers are slow to write
  for i = 1, #seqs do
    held[2 * i - 1], held[2 * i] = seqs[i], text
  end
  call_in_parts('HSET', LEASED, held)
  call('HSET', CLAIMS, fence, pack({session, at, table.concat(seqs)}))
  if #seqs > 1 then call('HSET', CLAIM_REMAINING, fence, #seqs) end -- of one alone nothing is left, whoever counts
  call('SADD', CLAIMS_OF .. session, fence)
end

local function release(r) -- it is nowhere until it enters, waits to end, or ends
  local chore = CHORE_REASONS[r.why]
  count(r.source, chore and r.state or 'running', -1)
  if r.lane and not chore then running(lane(r.lane), -1) end
  return chore
end
