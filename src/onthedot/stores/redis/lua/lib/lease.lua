-- Lease tasks to a session, under one fence. Apart from leases.lua: a hand-off needs no more than this.
-- uses: prelude
local CLAIMS, CLAIM_REMAINING, CLAIMS_OF = P .. 'claims', P .. 'claim_remaining', P .. 'claims:'

local function lease(fence, session, seqs)
  local leased, text = {}, tostring(fence) -- formatted once
  for i = 1, #seqs do
    leased[2 * i - 1], leased[2 * i] = seqs[i], text
  end
  call('HSET', CLAIMS, fence, pack({session, at, table.concat(seqs)}))
  if #seqs > 1 then call('HSET', CLAIM_REMAINING, fence, #seqs) end -- of a single one, any release leaves none
  call('SADD', CLAIMS_OF .. session, fence)
  call_in_parts('HSET', LEASED, leased) -- last: a lease without a claim would never end
end
