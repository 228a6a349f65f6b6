-- add: store new tasks, or hand them off to an idle worker.
-- KEYS[1]: prefix. ARGV: now, policies (msgpack {digest: text}), groups (msgpack, see insert.lua), all uuids in one, then the
--   body of each task.
-- Returns: for each task "" if it is new, else the uuid of the existing one.
-- uses: insert
local groups, bodies, keyed = unpacked(ARGV[3]), {}, false
policy_texts = unpacked(ARGV[2])
for i = 5, #ARGV do bodies[i - 4] = ARGV[i] end
for _, group in ipairs(groups) do keyed = keyed or group[6] end
if keyed then
  -- here: unique_keys
end

local function hand_off(r, seqs, tasks) -- plain tasks only: a turn checks unique keys, expiries and suspects
  if r.unique or r.policy.x or is_suspect(r) then return false end
  flush() -- a full server refuses the call here, before a message is sent
  -- here: handoff
  if not hand_off_to_idle(r.source, seqs, tasks) then return false end
  count(r.source, 'running', #seqs)
  log_run('ready', seqs[1], seqs[#seqs], #seqs)
  log_run('running', seqs[1], seqs[#seqs], #seqs)
  return true
end

local holders = add(groups, uuids_in(ARGV[4]), bodies, #groups == 1 and hand_off or nil)
commit()
return holders
