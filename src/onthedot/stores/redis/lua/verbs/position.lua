-- stand: what decides whether a waiting task may start, for the rules to be asked. Reads only.
-- KEYS[1]: prefix. ARGV: now, uuid, the most to count.
-- Returns: nothing if it does not wait; else seq, task, past, state, now, how many of its source run, how many are before
--   it, fields of limits and packed limits in turn, [running, admitted, pledged, tokens, at] of its source and of its lane;
--   digest and text of its policy.
-- uses: prelude write_buffer policies records
local seq, most = call('HGET', IDS, ARGV[2]), tonumber(ARGV[3])
local asked = seq and call('HGET', TASK, seq)
local r = asked and to_record(seq, asked, call('HGET', HISTORY, seq))
if not r or r.state or call('HEXISTS', LEASED, seq) == 1 then return false end

local function before(key, first) -- by (rank, seq): members of one rank are in the order of their numbers
  local mark = call('ZSCORE', key, first)
  if mark then return call('ZRANK', key, first) end
  local place = text_of(rank(r))
  local number, ties = call('ZCOUNT', key, '-inf', '(' .. place), call('ZRANGEBYSCORE', key, place, place, 'LIMIT', 0, most)
  for i = 1, #ties do
    if number_of(ties[i]) < number_of(seq) then number = number + 1 end
  end
  return number
end

local state = 'scheduled'
if call('ZSCORE', queue(r), member(r)) then
  state = 'ready'
elseif r.lane and call('ZSCORE', PARKED .. r.lane, seq) then
  state = 'parked'
end
local ahead = before(READY .. r.source, member(r)) + before(SUSPECT .. r.source, member(r))
if state == 'parked' then ahead = ahead + before(PARKED .. r.lane, seq) end
local limits = {}
for _, name in ipairs({r.source, r.lane, r.lane and r.lane:match('^([^/]*)/') and r.lane:match('^([^/]*)/') .. '/*'}) do
  for _, by in ipairs({'operator', 'code'}) do
    local packed = name and call('HGET', P .. 'limits', name .. '|' .. by)
    if packed then
      limits[#limits + 1] = name .. '|' .. by
      limits[#limits + 1] = packed
    end
  end
end
local function lane_of(name)
  return name and call('HMGET', P .. 'lane:' .. name, 'running', 'admitted', 'reserved', 'tokens', 'at') or {}
end
return {
  seq, asked, call('HGET', HISTORY, seq), state, text_of(now), tonumber(call('HGET', P .. 'tally', r.source .. ':running')) or 0,
  math.min(ahead, most), limits, lane_of(r.source), lane_of(r.lane), r.digest, texts[r.digest],
}
