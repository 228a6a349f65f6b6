-- position: read what decides whether a pending task may start; Python applies the rules.
-- KEYS[1]: prefix. ARGV: now, uuid, the most tasks to count.
-- Returns: nothing if the task is not pending; else seq, task, history, state, now, running tasks of its source, tasks before
--   it, fields and packed limits in turn, [running, admitted, reserved, tokens, at] of its source and of its lane, digest and
--   text of its policy.
-- uses: record_format
local seq, most = call('HGET', IDS, ARGV[2]), tonumber(ARGV[3])
local task = seq and call('HGET', TASK, seq)
local r = task and to_record(seq, task, call('HGET', HISTORY, seq))
if not r or r.state or r.policy.undecodable or call('HEXISTS', LEASED, seq) == 1 then return false end

local function before(key, own) -- by (rank, seq): members of one rank are in the order of their seqs
  if call('ZSCORE', key, own) then return call('ZRANK', key, own) end
  local score = text_of(rank(r))
  local number = call('ZCOUNT', key, '-inf', '(' .. score)
  for _, tie in ipairs(call('ZRANGEBYSCORE', key, score, score, 'LIMIT', 0, most)) do
    if number_of(tie) < number_of(seq) then number = number + 1 end
  end
  return number
end

local function lane_of(name)
  return name and call('HMGET', P .. 'lane:' .. name, 'running', 'admitted', 'reserved', 'tokens', 'at') or {false, false, false, false, false}
end

local state = 'scheduled'
if call('ZSCORE', queue(r), member(r)) then
  state = 'ready'
elseif r.lane and call('ZSCORE', PARKED .. r.lane, seq) then
  state = 'parked'
end
local ahead = before(READY .. r.source, member(r)) + before(SUSPECT .. r.source, member(r))
if state == 'parked' then ahead = ahead + before(PARKED .. r.lane, seq) end
local limits, head = {}, r.lane and r.lane:match('^([^/]*)/')
for _, name in ipairs({r.source, r.lane, head and head .. '/*'}) do
  for _, owner in ipairs({'operator', 'code'}) do
    local packed = name and call('HGET', P .. 'limits', name .. '|' .. owner)
    if packed then
      limits[#limits + 1] = name .. '|' .. owner
      limits[#limits + 1] = packed
    end
  end
end
local running = tonumber(call('HGET', TALLY, r.source .. ':running')) or 0
return {
  seq, task, call('HGET', HISTORY, seq), state, text_of(now), running, math.min(ahead, most), limits, lane_of(r.source),
  lane_of(r.lane), r.digest, policy_texts[r.digest],
}
