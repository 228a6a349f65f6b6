-- Handing out: a worker that has nothing to do says what it waits for. Whoever adds that claims it for the worker in the same
-- step, and sends it. A message that gets lost does no harm: the worker's next ask has the number of this claim, and is
-- told the same again.
-- waiting: by session until when (a double), the number of its next ask (I8), then of each source 0, name, 1 and room (I2).
local LONGEST = 1048576 -- bytes of a message: a server cuts off who has too much to read

local function is_subscribed(session) -- asked first: a message may also get to whom the server does not count, over other nodes
  local heard = redis.pcall('PUBSUB', 'NUMSUB', P .. 'to:' .. session)
  return not heard.err and heard[2] > 0
end

local function find_idle_worker(source, number) -- one who has room for so many, and its number
  local some = call('HRANDFIELD', IDLE_WORKERS, 3, 'WITHVALUES')
  if #some == 0 then return nil end
  local limits = call('HMGET', P .. 'limits', source .. '|code', source .. '|operator')
  if limits[1] or limits[2] then return nil end -- a turn looks at them
  for i = 1, #some, 2 do
    local text = some[i + 1]
    local _, place = text:find('\0' .. source .. '\1', 17, true)
    if place and struct.unpack('>I2', text, place + 1) >= number and struct.unpack('>d', text) > now and is_subscribed(some[i]) then
      return some[i], (struct.unpack('>I8', text, 9))
    end
  end
end

local function hand_off(source, tasks) -- number and what was asked in turn; false: that is left to a turn
  local session, ask = find_idle_worker(source, #tasks / 2)
  if not session then return false end
  local fence, seqs, held, said, size = call('HINCRBY', SEQUENCES, 'fence', 1), {}, {}, {}, 0
  for i = 1, #tasks, 2 do
    local seq, asked = tasks[i], tasks[i + 1]
    seqs[#seqs + 1] = seq
    held[i], held[i + 1], size = seq, fence, size + #asked
    said[i], said[i + 1] = seq .. struct.pack('>I4', #asked), asked
  end
  if size > LONGEST then return false end
  local head = pack({'leased', ask, fence})
  local sent = redis.pcall('PUBLISH', P .. 'to:' .. session, struct.pack('>I2', #head) .. head .. table.concat(said))
  if type(sent) == 'table' then return false end -- forbidden: it would lie until the worker's next poll, while others are free
  call('HDEL', IDLE_WORKERS, session)
  call_in_parts('HSET', LEASED, held)
  call('HSET', CLAIMS, fence, pack({session, at, table.concat(seqs)}))
  if #seqs > 1 then call('HSET', CLAIM_REMAINING, fence, #seqs) end
  call('SADD', CLAIMS_OF .. session, fence)
  call('HSET', P .. 'session:' .. session, 'number', ask, 'fence', fence, 'last_number', ask)
  return true
end
