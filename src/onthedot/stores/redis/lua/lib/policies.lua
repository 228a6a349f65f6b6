-- Seqs and policies. A seq is six bytes in the order of the numbers; a policy is stored once per source, by its digest.
-- uses: write_buffer
local UNKNOWN_SOURCE = '?' -- of tasks whose policy cannot be read; no source has this name
local POLICIES, policies, policy_uses, policy_texts = P .. 'policies', {}, {}, {}

local function number_of(seq) return (struct.unpack('>I6', seq)) end -- Lua compares strings by the server's locale

local function is_known(id) -- a seq; or, of an ended task that is not retained, the time until which its uuid is known
  return #id == 6 or tonumber(id) > now
end

local function seqs_in(text)
  local seqs = {}
  for i = 1, #text, 6 do seqs[#seqs + 1] = text:sub(i, i + 5) end
  return seqs
end

local POLICY_TYPES = {
  b = 'number', c = 'number', u = 'number', x = 'number', m = 'number', p = 'number', r = 'string', k = 'string', t = 'table',
}

local function to_policy(text) -- one that cannot be read is marked; its tasks become chores
  local ok, policy = pcall(cjson.decode, text)
  if not ok or type(policy) ~= 'table' or type(policy.s) ~= 'string' then return {s = UNKNOWN_SOURCE, undecodable = true} end
  for field, value in pairs(policy) do
    if POLICY_TYPES[field] and type(value) ~= POLICY_TYPES[field] then return {s = policy.s, undecodable = true} end
  end
  return policy
end

local function check_policies() -- those of the call, before the first write: a digest has one text
  for digest, text in pairs(policy_texts) do
    local stored = call('HGET', POLICIES, digest)
    if stored and stored ~= text then error('DIGESTCLASH ' .. digest) end
  end
end

local function policy_of(digest)
  local policy = policies[digest]
  if not policy then
    policy_texts[digest] = policy_texts[digest] or call('HGET', POLICIES, digest)
    policy = to_policy(policy_texts[digest])
    policies[digest] = policy
  end
  return policy
end
