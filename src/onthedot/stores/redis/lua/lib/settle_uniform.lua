-- Most tasks of a group end alike: at their first try, with nothing but a result, and their heads are the same.
local function likeness(o, r, asked) -- of one that has just ended, for those that follow; nil if more than that was to be done
  local more = r.lane or r.unique or o.adds or o.keep <= 0 or is_suspect(r)
  if more or o.state ~= 'succeeded' or not r.fresh or effective(r.source) then return nil end
  local past, to = history_of(r, false), 16 + struct.unpack('>I2', asked, 15)
  return {
    source = r.source, head = asked:sub(15, to), to = to, number = 0,
    past = past:sub(1, #past - #r.result), timed = r.result_until ~= nil,
    moved = moves[o.state], kept = kept[at + o.keep],
    ends = r.policy.r and ends[r.policy.r], results = r.result_until and o.keep_result < o.keep and results[r.result_until] or nil,
  }
end

local function ends_alike(o, i, seq, asked)
  local like, data = o.like, o.data[i]
  if asked:sub(15, like.to) ~= like.head then return false end
  if like.timed ~= (result_until(o, data) ~= nil) then return false end
  like.number = like.number + 1
  like.moved[#like.moved + 1] = seq
  like.kept[#like.kept + 1] = seq
  if like.ends then like.ends[#like.ends + 1] = o.uuids[i] end
  if like.results then like.results[#like.results + 1] = seq end
  buffer(sets, HISTORY, seq, like.past .. data)
  return true
end

local function count_alike(o)
  local source, number = o.like.source, o.like.number
  count(source, 'running', -number)
  count(source, o.state, number)
  moved = moved + number
end
