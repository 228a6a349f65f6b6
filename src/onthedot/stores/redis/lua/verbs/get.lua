-- look: records as others see them, with the claims that hold them. Reads only.
-- KEYS[1]: prefix. ARGV: now, "uuids" or "seqs", then these.
-- Returns: for each that is there: its place in the question, seq, task, past, state, session and start if it runs;
--   now; digest and text in turn of their policies.
-- uses: prelude write_buffer policies records
local function place(r)
  if call('ZSCORE', queue(r), member(r)) then return 'ready' end
  return r.lane and call('ZSCORE', PARKED .. r.lane, r.seq) and 'parked' or 'scheduled'
end

local seqs, found = {}, {}
for i = 3, #ARGV do seqs[#seqs + 1] = ARGV[i] end
if ARGV[2] == 'uuids' then
  seqs = read_fields(IDS, seqs)
  for i, seq in ipairs(seqs) do seqs[i] = seq or '' end
end
local asked, past, held = read_fields(TASK, seqs), read_fields(HISTORY, seqs), read_fields(LEASED, seqs)
for i, seq in ipairs(seqs) do
  if asked[i] then
    local r = to_record(seq, asked[i], past[i])
    local claim = held[i] and not CHORE_REASONS[r.why] and unpacked(call('HGET', CLAIMS, held[i]))
    local state = claim and 'running' or r.state or place(r)
    found[#found + 1] = {i, seq, asked[i], past[i], state, claim and claim[1] or '', claim and claim[2] or 0}
  end
end
local known = {}
for digest, text in pairs(texts) do
  known[#known + 1] = digest
  known[#known + 1] = text
end
return {found, string.format('%.17g', now), known}
