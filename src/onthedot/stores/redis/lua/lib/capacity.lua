-- Room: how many more of a source may start now, and in how many ms it is worth asking again.
local function source_capacity(source)
  local limit = effective(source)
  if not limit then return math.huge end
  if limit.paused then return 0 end
  local free = limit.cap and math.max(0, limit.cap - counted(source, 'running')) or math.huge
  if not limit.rate or free == 0 then return free end
  local tokens, lent = level(lane(source), limit), limit.rate * SLACK / 1000
  if tokens + lent < 1 then return 0, (1 - tokens) / limit.rate * 1000 end
  return math.min(free, math.floor(tokens + lent))
end

local function start(source, number) -- counted, and paid for
  count(source, 'ready', -number)
  count(source, 'running', number)
  local limit = effective(source)
  if limit and limit.rate then
    local l = lane(source)
    l.tokens, l.changed = level(l, limit) - number, true
  end
end

local function idle_sources(pools, suspects_left) -- asked sources that have nothing to take now; false: until something happens
  local found, least = {}, nil
  for _, pool in ipairs(pools) do
    for i = 2, #pool, 2 do
      local source = pool[i]
      if pool[i + 1] > 0 then
        local keys = suspects_left > 0 and {READY .. source, SUSPECT .. source} or {READY .. source}
        local wait, free = false, 0
        if call('EXISTS', unpack(keys)) > 0 then free, wait = source_capacity(source) end
        if free <= 0 then
          found[#found + 1] = {source, wait or false}
          if wait and (not least or wait < least) then least = wait end
        end
      end
    end
  end
  return found, least
end

local function next_in(least) -- ms to the next alarm of any kind
  local function sooner(found)
    local moment = tonumber(found[2])
    if moment and (not least or moment - now < least) then least = math.max(0, moment - now) end
  end
  local first = BUCKET .. (call('ZRANGE', ALARMS, 0, 0)[1] or '')
  for _, key in ipairs({first, LANE_REFILLS, SESSION_LEASES}) do sooner(call('ZRANGE', key, 0, 0, 'WITHSCORES')) end
  sooner(call('ZRANGEBYSCORE', P .. 'schedule_due', '(' .. string.format('%.17g', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
  return least or false
end
