-- get: read records as others see them, with the claims that hold them.
-- KEYS[1]: prefix. ARGV: now, "uuids" or "seqs", then these.
-- Returns: for each that exists: its index in the request, seq, task, history, state, session and start if it runs;
--   now; digest and text of their policies in turn.
-- uses: record_format lease
local function place_of(r)
  if call('ZSCORE', queue(r), member(r)) then return 'ready' end
  if r.policy.undecodable and call('ZSCORE', queue(r), r.seq .. 'x') then return 'ready' end
  return r.lane and call('ZSCORE', PARKED .. r.lane, r.seq) and 'parked' or 'scheduled'
end

local seqs, found = {}, {}
for i = 3, #ARGV do seqs[#seqs + 1] = ARGV[i] end
if ARGV[2] == 'uuids' then
  seqs = read_fields(IDS, seqs)
  for i, seq in ipairs(seqs) do seqs[i] = seq or '' end
end
local tasks, histories, fences = read_fields(TASK, seqs), read_fields(HISTORY, seqs), read_fields(LEASED, seqs)
for i, seq in ipairs(seqs) do
  if tasks[i] then
    local r = to_record(seq, tasks[i], histories[i])
    local claim = fences[i] and not UNQUEUED_REASONS[r.reason] and unpacked(call('HGET', CLAIMS, fences[i]))
    local state = claim and 'running' or r.state or place_of(r)
    found[#found + 1] = {i, seq, tasks[i], histories[i], state, claim and claim[1] or '', claim and claim[2] or 0}
  end
end
local known = {}
for digest, text in pairs(policy_texts) do
  known[#known + 1] = digest
  known[#known + 1] = text
end
return {found, string.format('%.17g', now), known}
