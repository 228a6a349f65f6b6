-- Claim: chores first, then each pool. One that took nothing uses up no number.
local function records_of(seqs)
  local past, any_past = read_fields(HISTORY, seqs), false
  for i = 1, #past do any_past = any_past or past[i] end
  return {table.concat(seqs), read_fields(TASK, seqs), any_past and past or {}}
end

local function take_all(session, ask)
  local chores, tasks, suspects = {}, {}, suspects_left
  flush()
  for _, seq in ipairs(call('ZRANGE', CHORE, 0, CHORES - 1)) do chores[#chores + 1] = seq end
  if #chores > 0 then call('ZREMRANGEBYRANK', CHORE, 0, #chores - 1) end
  if ask.known then take_strays(ask.known, chores) end
  for _, pool in ipairs(ask.pools) do take(pool, tasks) end
  flush()
  local all = {}
  for _, seq in ipairs(chores) do all[#all + 1] = seq end
  for _, seq in ipairs(tasks) do all[#all + 1] = seq end
  if #all == 0 then return 0, tasks, chores end
  local fence = next_number('fence')
  hold(fence, session, all)
  call('HSET', SESSION .. session, 'number', ask.number, 'fence', fence, 'suspects', ask.suspects - suspects_left, 'last_number', ask.number)
  return fence, tasks, chores
end

local function leased_under_claim(fence) -- what still runs under it
  local tasks, chores, seqs = {}, {}, leased_under(fence)
  for i, past in ipairs(read_fields(HISTORY, seqs)) do
    local chore = past and CHORE_REASONS[select(2, cmsgpack.unpack_one(past, 6))[3]]
    local list = chore and chores or tasks
    list[#list + 1] = seqs[i]
  end
  return #seqs > 0 and fence or 0, tasks, chores
end

local function take_up(session, ask) -- all that the session is believed to hold, as one claim: what it has ended since was forgotten
  local seqs = {}
  for _, fence in ipairs(call('SMEMBERS', CLAIMS_OF .. session)) do
    for _, seq in ipairs(leased_under(tonumber(fence))) do seqs[#seqs + 1] = seq end
    drop_claim(tonumber(fence), session)
  end
  if #seqs == 0 then return take_all(session, ask) end
  local fence = next_number('fence')
  hold(fence, session, seqs)
  call('HSET', SESSION .. session, 'number', ask.number, 'fence', fence, 'last_number', ask.number)
  return leased_under_claim(fence)
end

local function due_schedules()
  local found = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'schedule_due', '-inf', now, 'LIMIT', 0, BATCH)) do
    found[#found + 1] = {name, call('HGET', P .. 'schedules', name), call('HGET', P .. 'schedule_rules', name)}
  end
  return found
end

local function wait(session, ask) -- for what may come, see handing.lua
  call('HSET', IDLE_WORKERS, session, struct.pack('>d', now + struct.unpack('>d', ask.waits)) .. ask.waits:sub(9))
end

local function claim(session, ask, more)
  local f, fence, tasks, chores = call('HMGET', SESSION .. session, 'number', 'fence', 'suspects', 'last_number'), 0, {}, {}
  local last = tonumber(f[4]) or 0
  suspects_left = ask.suspects - (tonumber(f[3]) or 0)
  if ask.number >= last then call('HDEL', IDLE_WORKERS, session) end -- first: after a deletion a full server lets the rest through
  local lapse = ask.number > last + 1 -- numbers grow by one: what was asked in between is lost, and with it what was told
  if ask.number > last then
    fence, tasks, chores = (lapse and take_up or take_all)(session, ask)
    if fence == 0 then call('HSET', SESSION .. session, 'last_number', ask.number) end
  elseif tonumber(f[1]) == ask.number then
    fence, tasks, chores = leased_under_claim(tonumber(f[2]))
  end
  flush()
  local resting, least = idle_sources(ask.pools, suspects_left)
  local schedules = due_schedules()
  more = more or #chores == CHORES or parked_now >= BATCH or lapse or ask.number < last -- late: the next one has got something by now
  if ask.number >= last and fence == 0 and not more and #schedules == 0 and ask.waits ~= '' then wait(session, ask) end
  local about = pack({fence, resting, keys_of(woken), next_in(least), more, now})
  return {about, records_of(tasks), records_of(chores), schedules}
end
