-- Records that cannot be read. Their bytes stay in the hash `undecodable`: msgpack [task, history].
-- uses: tallies
local function keep_bytes(r) call('HSET', P .. 'undecodable', r.seq, r.raw) end

local function set_aside(r) -- without a uuid no session can settle it; it counts as failed
  local number = number_of(r.seq)
  buffer(deletions, TASK, r.seq)
  buffer(deletions, HISTORY, r.seq)
  call('ZREM', P .. 'unqueued', r.seq)
  count(r.source, 'failed', 1)
  blocks[math.floor(number / 1000)] = (blocks[math.floor(number / 1000)] or 0) - 1
end
