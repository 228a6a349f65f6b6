-- Numbers and policies: a number (seq) is six bytes, whose order is the numbers'; a policy is kept once a source
-- (s), by its digest.
local CHORE_REASONS = {cancel = true, expired = true, crashed = true, stray = true, lifted = true} -- in no order: it must end, or was lifted
local queue_keys = {[READY] = {}, [SUSPECT] = {}} -- made once a call
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
