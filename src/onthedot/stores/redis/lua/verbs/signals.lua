-- signals: read the signals that are kept under a name, by number.
-- KEYS[1]: prefix. ARGV: now, name, number after which they begin, the most to return.
-- Returns: value of the counter of this name, [number, id, payload] of each.
-- uses: signals
local name, after, limit = ARGV[2], '(' .. ARGV[3], tonumber(ARGV[4])
local found, offset = {}, 0
repeat
  local page = call('ZRANGEBYSCORE', SIGNAL_ORDER .. name, after, '+inf', 'WITHSCORES', 'LIMIT', offset, limit)
  local ids = {}
  for i = 1, #page, 2 do ids[#ids + 1] = page[i] end
  for i, kept in ipairs(are_kept(name, ids)) do
    if kept and #found < limit then found[#found + 1] = {page[2 * i], ids[i], call('HGET', SIGNALS .. name, ids[i])} end
  end
  offset = offset + #ids
until #ids < limit or #found >= limit
return {call('HGET', P .. 'counters', name) or '0', found}
