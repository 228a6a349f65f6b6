-- Held by somebody who may be no worker: those that it was given, as chores, under one claim.
local function present(session, lease) -- for a while
  if call('HEXISTS', WORKERS, session) == 0 then call('ZADD', SESSION_LEASES, now + lease, session) end
end

local function lease(session, seqs) -- the end of a verb
  flush()
  local fence = 0
  if #seqs > 0 then
    fence = next_number('fence')
    hold(fence, session, seqs)
  end
  finish()
  return {fence, {table.concat(seqs), read_fields(TASK, seqs), read_fields(HISTORY, seqs)}}
end
