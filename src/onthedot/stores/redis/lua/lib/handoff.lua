-- Hand-off: an idle worker's claim request leaves an offer; the call that adds a matching task leases it to that worker and
-- publishes it. A lost message does no harm: the worker's next request has the number of this claim and gets the same tasks.
-- An offer: valid until (a double), number of the next request (I8), then 0, name, 1 and capacity (I2) of each source.
-- uses: lease
local MAX_MESSAGE = 1048576 -- bytes: a server disconnects subscribers with too much unread output

local function is_subscribed(session) -- not by the result of PUBLISH: in a cluster a message also reaches other nodes
  local answer = redis.pcall('PUBSUB', 'NUMSUB', P .. 'to:' .. session)
  return not answer.err and answer[2] > 0
end

local function find_idle_worker(source, number) -- a session with capacity for so many tasks, and the number of its request
  local offers = call('HRANDFIELD', IDLE_WORKERS, 3, 'WITHVALUES')
  if #offers == 0 then return nil end
  local limits = call('HMGET', P .. 'limits', source .. '|code', source .. '|operator')
  if limits[1] or limits[2] then return nil end -- only turns check limits
  for i = 1, #offers, 2 do
    local session, offer = offers[i], offers[i + 1]
    local _, last = offer:find('\0' .. source .. '\1', 17, true)
    local fits = last and struct.unpack('>I2', offer, last + 1) >= number and struct.unpack('>d', offer) > now
    if fits and is_subscribed(session) then return session, (struct.unpack('>I8', offer, 9)) end
  end
end

local function publish_leased(session, request, fence, tasks) -- tasks: seq and task in turn; false: PUBLISH is forbidden
  local message = {}
  for i = 1, #tasks, 2 do
    message[i], message[i + 1] = tasks[i] .. struct.pack('>I4', #tasks[i + 1]), tasks[i + 1]
  end
  local head = pack({'leased', request, fence})
  local sent = redis.pcall('PUBLISH', P .. 'to:' .. session, struct.pack('>I2', #head) .. head .. table.concat(message))
  return type(sent) ~= 'table'
end

local function hand_off_to_idle(source, seqs, tasks) -- false: the tasks are left to a turn
  local size = 0
  for i = 2, #tasks, 2 do size = size + #tasks[i] end
  if size > MAX_MESSAGE then return false end
  local session, request = find_idle_worker(source, #seqs)
  if not session then return false end
  local fence = call('HINCRBY', SEQUENCES, 'fence', 1)
  if not publish_leased(session, request, fence, tasks) then return false end
  call('HDEL', IDLE_WORKERS, session)
  lease(fence, session, seqs)
  call('HSET', P .. 'session:' .. session, 'number', request, 'fence', fence, 'last_number', request)
  return true
end
