-- add_alike: new tasks that differ by uuid and body alone, of no lane, without a unique key, not to expire and no suspects:
-- what add does, without a record or a closure of anything, since most calls are of this kind.
-- KEYS[1]: prefix. ARGV: now, source, digest and text of the policy, boost, at ("": see after), after, head, uuids in one,
--   then the body of each.
-- Returns: for each: "" if it is new, else its uuid, which was there.
-- uses: prelude force_hashtable
local source, digest, moment, after = ARGV[2], ARGV[3], tonumber(ARGV[6]), tonumber(ARGV[7])
local uuids = uuids_in(ARGV[9])
local number = #uuids

local there, here, holders, new, fresh = read_fields(IDS, uuids), {}, {}, {}, 0
for i = 1, number do
  local uuid = uuids[i]
  if there[i] or here[uuid] then
    holders[i] = uuid
  else
    fresh = fresh + 1
    here[uuid], holders[i], new[fresh] = true, '', i
  end
end
if fresh == 0 then return holders end

local last = call('HINCRBY', SEQUENCES, 'seq', fresh)
local before = last - fresh
if before == 0 then force_hashtable() end

local due = moment or (after > 0 and math.ceil(now + after)) or at
local state = due <= now and 'ready' or 'scheduled'
local score = string.format('%.17g', state == 'ready' and due - tonumber(ARGV[5]) or due)
local head = struct.pack('>i8I6I2', due, at, #ARGV[8]) .. ARGV[8]
local tasks, ids, order = {}, {}, {}
for i = 1, fresh do
  local uuid, seq, place = uuids[new[i]], struct.pack('>I6', before + i), 2 * i
  tasks[place - 1], tasks[place] = seq, head .. uuid .. ARGV[9 + new[i]]
  ids[place - 1], ids[place] = uuid, seq
  order[place - 1], order[place] = score, seq
end

local publish, handed
if state == 'ready' then
  publish = call('EXISTS', READY .. source) == 0
  if publish then
    -- here: handoff
    handed = hand_off(source, tasks)
  end
  if not handed then call_in_parts('ZADD', READY .. source, order) end
else
  -- here: alarms
  publish = is_first_alarm(due)
  set_alarms({[math.floor(due / WIDTH)] = order})
end
call_in_parts('HSET', IDS, ids)
call_in_parts('HSET', TASK, tasks)
call('HINCRBY', TALLY, source .. ':' .. (handed and 'running' or state), fresh)
for block = math.floor((before + 1) / 1000), math.floor(last / 1000) do
  local from, to = math.max(before + 1, block * 1000), math.min(last, block * 1000 + 999)
  call('HINCRBY', SEQ_BLOCKS, block, to - from + 1)
end
if call('HINCRBY', P .. 'policy_uses', digest, fresh) == fresh then call('HSET', P .. 'policies', digest, ARGV[4]) end
local moves = call('HINCRBY', SEQUENCES, 'transitions', handed and 2 * fresh or fresh)
local run, seqs = '', order[2]
if fresh > 1 then run, seqs = 'run:', order[2] .. order[2 * fresh] end -- the first and the last of them say all
local row = {'at', at, run .. state, seqs, handed and run .. 'running', handed and seqs}
call('XADD', P .. 'changes', 'MINID', '~', math.max(0, moves - 100000), moves .. '-0', unpack(row, 1, handed and 6 or 4))
if publish and not handed then
  if state == 'ready' then call('DEL', IDLE_WORKERS) end -- as in telling.lua
  redis.pcall('PUBLISH', P .. 'hints', pack({false, {source}}))
end
return holders
