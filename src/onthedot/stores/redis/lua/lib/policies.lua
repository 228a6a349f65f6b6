-- Seqs and policies. A seq is six bytes in the order of the numbers; a policy is stored once per source, by its digest.
-- uses: write_buffer
local POLICIES, policies, policy_uses, policy_texts = P .. 'policies', {}, {}, {}

local function number_of(seq) return (struct.unpack('>I6', seq)) end -- Lua compares strings by the server's locale

local function seqs_in(text)
  local seqs = {}
  for i = 1, #text, 6 do seqs[#seqs + 1] = text:sub(i, i + 5) end
  return seqs
end

local function policy_of(digest)
  local policy = policies[digest]
  if not policy then
    policy_texts[digest] = policy_texts[digest] or call('HGET', POLICIES, digest)
    policy = cjson.decode(policy_texts[digest])
    policies[digest] = policy
  end
  return policy
end
