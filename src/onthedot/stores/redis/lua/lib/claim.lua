-- Claim: chores first, then each pool. A request that takes nothing uses no fence.
-- A request: number, pools, max_suspects, offer ("" or as in handoff.lua, with ms in place of the time).
-- uses: leases claim_queues notify
local function records_of(seqs)
  local histories, any = read_fields(HISTORY, seqs), false
  for i = 1, #histories do any = any or histories[i] end
  return {table.concat(seqs), read_fields(TASK, seqs), any and histories or {}}
end

local function take_chores()
  flush()
  local chores = call('ZRANGE', CHORE, 0, CHORES - 1)
  if #chores > 0 then call('ZREMRANGEBYRANK', CHORE, 0, #chores - 1) end
  return chores
end

local function take(session, request)
  local chores, tasks, all = take_chores(), {}, {}
  for _, pool in ipairs(request.pools) do pick(pool, tasks) end
  flush()
  for _, seq in ipairs(chores) do all[#all + 1] = seq end
  for _, seq in ipairs(tasks) do all[#all + 1] = seq end
  if #all == 0 then return 0, tasks, chores end
  local fence = next_number('fence')
  lease(fence, session, all)
  call('HSET', SESSION .. session, 'number', request.number, 'fence', fence, 'suspects', request.max_suspects - suspects_left,
    'last_number', request.number)
  return fence, tasks, chores
end

local function repeat_claim(fence) -- the tasks still leased under it
  local tasks, chores, seqs = {}, {}, leased_under(fence)
  for i, history in ipairs(read_fields(HISTORY, seqs)) do
    local read, _, head = pcall(cmsgpack.unpack_one, history or '', 6)
    local is_chore = read and type(head) == 'table' and UNQUEUED_REASONS[head[3]] -- [3]: reason, see history_of
    local list = is_chore and chores or tasks
    list[#list + 1] = seqs[i]
  end
  return #seqs > 0 and fence or 0, tasks, chores
end

local function reclaim(session, request) -- all leases of the session as one claim: the server has lost what it settled since
  local seqs, before = {}, call('SMEMBERS', CLAIMS_OF .. session)
  for _, fence in ipairs(before) do
    for _, seq in ipairs(leased_under(tonumber(fence))) do seqs[#seqs + 1] = seq end
  end
  if #seqs == 0 then return take(session, request) end
  local fence = next_number('fence')
  lease(fence, session, seqs)
  for _, old in ipairs(before) do drop_claim(tonumber(old), session) end -- last: a lease without a claim would never end
  call('HSET', SESSION .. session, 'number', request.number, 'fence', fence, 'last_number', request.number)
  return repeat_claim(fence)
end

local function due_schedules()
  local found = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'schedule_due', '-inf', now, 'LIMIT', 0, BATCH)) do
    found[#found + 1] = {name, call('HGET', P .. 'schedules', name), call('HGET', P .. 'schedule_rules', name)}
  end
  return found
end

local function store_offer(session, offer)
  call('HSET', IDLE_WORKERS, session, struct.pack('>d', now + struct.unpack('>d', offer)) .. offer:sub(9))
end

local function claim(session, request, more, identity) -- identity: of the data, and the last fence before this claim
  local number, last_fence, suspects, last =
    unpack(call('HMGET', SESSION .. session, 'number', 'fence', 'suspects', 'last_number'), 1, 4)
  local fence, tasks, chores = 0, {}, {}
  last = tonumber(last) or 0
  suspects_left = request.max_suspects - (tonumber(suspects) or 0)
  local late = request.number < last -- a later request has been answered already
  if not late then call('HDEL', IDLE_WORKERS, session) end -- first: after a deletion a full server takes writes
  local lapse = request.number > last + 1 -- numbers grow by one: the server has lost the requests in between, and their effects
  if request.number > last then
    fence, tasks, chores = (lapse and reclaim or take)(session, request)
    if fence == 0 then call('HSET', SESSION .. session, 'last_number', request.number) end
  elseif not late and tonumber(number) == request.number then
    fence, tasks, chores = repeat_claim(tonumber(last_fence))
  end
  flush()
  local idle, least = idle_sources(request.pools, suspects_left)
  local schedules = due_schedules()
  more = more or #chores == CHORES or parked_now >= BATCH or lapse or late
  if not late and fence == 0 and not more and request.offer ~= '' then store_offer(session, request.offer) end
  local newest = math.max(fence, tonumber(identity[2]) or 0)
  local summary = pack({fence, idle, keys_of(woken), next_in(least), more, now, identity[1], newest})
  return {summary, records_of(tasks), records_of(chores), schedules}
end
