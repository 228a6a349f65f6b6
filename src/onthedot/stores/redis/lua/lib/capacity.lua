-- Capacity of sources: how many more tasks may start now, which sources are idle, and when to ask again.
-- uses: lanes
local function source_capacity(source) -- and the ms after which a rate gives the next
  local limit = effective(source)
  if not limit then return math.huge end
  if limit.paused then return 0 end
  local free = limit.cap and math.max(0, limit.cap - counted(source, 'running')) or math.huge
  if not limit.rate or free == 0 then return free end
  local tokens, lent = level(lane(source), limit), limit.rate * SLACK / 1000
  if tokens + lent < 1 then return 0, (1 - tokens) / limit.rate * 1000 end
  return math.min(free, math.floor(tokens + lent))
end

local function start(source, number)
  count(source, 'ready', -number)
  count(source, 'running', number)
  local limit = effective(source)
  if limit and limit.rate then spend(lane(source), limit, number) end
end

local function idle_sources(pools, suspects_left) -- {source, ms or false: until a hint} each; and the least ms
  local idle, least = {}, nil
  for _, pool in ipairs(pools) do
    for i = 2, #pool, 2 do
      local source = pool[i]
      if pool[i + 1] > 0 then
        local keys = suspects_left > 0 and {READY .. source, SUSPECT .. source} or {READY .. source}
        local wait, free = false, 0
        if call('EXISTS', unpack(keys)) > 0 then free, wait = source_capacity(source) end
        if free <= 0 then
          idle[#idle + 1] = {source, wait or false}
          if wait and (not least or wait < least) then least = wait end
        end
      end
    end
  end
  return idle, least
end

local function next_in(least) -- ms to the next alarm, refill, end of a lease or schedule
  local function sooner(found)
    local time = tonumber(found[2])
    if time and (not least or time - now < least) then least = math.max(0, time - now) end
  end
  local first = BUCKET .. (call('ZRANGE', ALARMS, 0, 0)[1] or '')
  for _, key in ipairs({first, LANE_REFILLS, P .. 'session_leases'}) do sooner(call('ZRANGE', key, 0, 0, 'WITHSCORES')) end
  local from = '(' .. string.format('%.17g', now)
  sooner(call('ZRANGEBYSCORE', P .. 'schedule_due', from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
  return least or false
end
