-- Tasks that cancel and lift lease to their caller, which may be no worker, under one claim.
-- uses: leases notify
local function ensure_session(session, ms) -- a session without heartbeats lives for this time
  if call('HEXISTS', WORKERS, session) == 0 then call('ZADD', SESSION_LEASES, now + ms, session) end
end

local function lease_to_caller(session, seqs) -- ends the verb; returns fence (0: nothing was leased) and records
  flush()
  local fence = 0
  if #seqs > 0 then
    fence = next_number('fence')
    lease(fence, session, seqs)
  end
  commit()
  return {fence, {table.concat(seqs), read_fields(TASK, seqs), read_fields(HISTORY, seqs)}}
end
