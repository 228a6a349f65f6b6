-- Insert one group of plain tasks: no lane, unique key, wait or expiry, and no suspects. Its effect is that of `add` in insert.lua.
-- It is straight code: most adds are of this kind, and defining the functions of the rules takes longer than the writes
-- (docs/adr/0018).
-- Expects: group, links (see record_format.lua, or nil), policy, policy_texts, uuids. Returns from the verb.
-- uses: prelude
local source, digest = policy.s, group[2]
local stored_policy = call('HGET', P .. 'policies', digest)
if stored_policy and stored_policy ~= policy_texts[digest] then error('DIGESTCLASH ' .. digest) end
local found, known, holders, new = read_fields(IDS, uuids), {}, {}, {}
for i = 1, #uuids do
  local uuid = uuids[i]
  local id = found[i]
  if known[uuid] or (id and (#id == 6 or tonumber(id) > now)) then -- as is_known in policies.lua
    holders[i] = uuid
  else
    known[uuid], holders[i] = true, ''
    new[#new + 1] = i
  end
end
local number = #new
if number == 0 then return holders end

local last = call('HINCRBY', SEQUENCES, 'seq', number)
local before = last - number
if before == 0 then
  -- here: force_hashtable
  force_hashtable()
end
local due = group[3] or (group[4] > 0 and math.ceil(now + group[4])) or at
local place = due <= now and 'ready' or 'scheduled'
local score = string.format('%.17g', place == 'ready' and due - (policy.b or 0) or due)
local head = '\145' .. pack(digest)
if links then head = '\148' .. pack(digest, nil, nil) .. '\147' .. pack(links[1], links[2], nil) end
local prefix = struct.pack('>i8I6I2', due, at, #head) .. head
local seqs, tasks, ids, order = {}, {}, {}, {}
for i = 1, number do
  local uuid, seq = uuids[new[i]], struct.pack('>I6', before + i)
  seqs[i] = seq
  ids[2 * i - 1], ids[2 * i] = uuid, seq
  tasks[2 * i - 1], tasks[2 * i] = seq, prefix .. uuid .. ARGV[5 + new[i]]
  order[2 * i - 1], order[2 * i] = score, seq
end
call_in_parts('HSET', TASK, tasks) -- a full server refuses the call here, before a message is sent
call_in_parts('HSET', IDS, ids) -- second: a known uuid has a record, also if the script is aborted
if links and links[1] then
  -- here: flow_index
  index_flow(links[1], ids, #ids)
end

local notify, handed_off = false, false
if place == 'ready' then
  notify = call('EXISTS', READY .. source) == 0 -- no other task of the source is ready
  if notify and call('EXISTS', IDLE_WORKERS) == 1 then
    -- here: handoff
    handed_off = hand_off_to_idle(source, seqs, tasks)
  end
  if not handed_off then call_in_parts('ZADD', READY .. source, order) end
else
  -- here: alarm_buckets
  notify = is_first_alarm(due)
  set_alarms({[math.floor(due / WIDTH)] = order})
end

call('HINCRBY', TALLY, source .. ':' .. (handed_off and 'running' or place), number)
for block = math.floor((before + 1) / 1000), math.floor(last / 1000) do
  call('HINCRBY', SEQ_BLOCKS, block, math.min(last, block * 1000 + 999) - math.max(before + 1, block * 1000) + 1)
end
call('HINCRBY', P .. 'policy_uses', digest, number)
if not stored_policy then call('HSET', P .. 'policies', digest, policy_texts[digest]) end
local transitions = call('HINCRBY', SEQUENCES, 'transitions', handed_off and 2 * number or number)
local run = seqs[1] .. seqs[number] -- the first and the last of consecutive seqs
local row = {'at', at, 'run:' .. place .. ':' .. source, run}
if handed_off then row[5], row[6] = 'run:running:' .. source, run end
call('XADD', P .. 'changes', 'MINID', '~', math.max(0, transitions - 100000), transitions .. '-0', unpack(row))
if notify and not handed_off then
  if place == 'ready' then call('DEL', IDLE_WORKERS) end -- notified workers claim anew, by rank
  redis.pcall('PUBLISH', P .. 'hints', pack({false, {source}, false}))
end
return number < #uuids and holders
