-- get: read records as others see them, with the claims that hold them.
-- KEYS[1]: prefix. ARGV: now, "uuids" or "seqs", then these.
-- Returns: now; digest and text of their policies in turn; seqs, tasks, histories and states in the order of the request, where
--   one that does not exist has no task; of each that runs in turn: its index in the request, session and start.
-- uses: record_format lease
local function place_of(r)
  if call('ZSCORE', queue(r), member(r)) then return 'ready' end
  if r.policy.undecodable and call('ZSCORE', queue(r), r.seq .. 'x') then return 'ready' end
  return r.lane and call('ZSCORE', PARKED .. r.lane, r.seq) and 'parked' or 'scheduled'
end

local ENDED = {['\169succeeded'] = 'succeeded', ['\169cancelled'] = 'cancelled', ['\166failed'] = 'failed'} -- by msgpack

local function state_of_ended(task, history) -- nil: it lives, or its head is new to this call; the state is the first field of the history
  if #task < 16 or not heads[task:sub(17, 16 + struct.unpack('>I2', task, 15))] then return nil end
  local start = history:byte(7) == 159 and 8 or 10 -- behind the number of fields: 15, or more than that
  return ENDED[history:sub(start, start + 9)] or ENDED[history:sub(start, start + 6)]
end

local seqs, states, running = {}, {}, {}
for i = 3, #ARGV do seqs[i - 2] = ARGV[i] end
if ARGV[2] == 'uuids' then
  seqs = read_fields(IDS, seqs)
  for i = 1, #seqs do seqs[i] = seqs[i] or '' end
end
local tasks, histories, fences = read_fields(TASK, seqs), read_fields(HISTORY, seqs), read_fields(LEASED, seqs)
for i, seq in ipairs(seqs) do
  local task, history, fence = tasks[i], histories[i], fences[i]
  local state = not task and '' or history and not fence and state_of_ended(task, history)
  if not state then
    local r = to_record(seq, task, history)
    local claim = fence and not UNQUEUED_REASONS[r.reason] and unpacked(call('HGET', CLAIMS, fence))
    state = claim and 'running' or r.state or place_of(r)
    if claim then
      for _, value in ipairs({i, claim[1], claim[2]}) do running[#running + 1] = value end
    end
  end
  states[i] = state
end
local known = {}
for digest, text in pairs(policy_texts) do
  known[#known + 1] = digest
  known[#known + 1] = text
end
return {string.format('%.17g', now), known, seqs, tasks, histories, states, running}
