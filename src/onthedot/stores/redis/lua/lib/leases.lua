-- Leases: one claim holds the tasks that one call took for one session, under one fence.
-- uses: policies lease
local claims = {}

local function claim_of(fence) -- {session, time, seqs}
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

local function release_leases(fence, session, seqs)
  call_in_parts('HDEL', LEASED, seqs)
  if call('HINCRBY', CLAIM_REMAINING, fence, -#seqs) <= 0 then drop_claim(fence, session) end
end

local function leased_under(fence) -- in the order of the claim
  local claim, seqs = claim_of(fence), {}
  if not claim then return seqs end
  local all = seqs_in(claim[3])
  for i, holder in ipairs(read_fields(LEASED, all)) do
    if tonumber(holder) == fence then seqs[#seqs + 1] = all[i] end
  end
  return seqs
end
