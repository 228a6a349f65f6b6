-- Records: a task and its history as one table. See record_format.lua for how both are stored.
-- uses: policies
local UNQUEUED_REASONS = {cancel = true, expired = true, crashed = true, lifted = true, undecodable = true, upstream = true} -- the task is in no queue
local NO_HISTORY = {reason = 'due', retries = 0, crashes = 0, earlier = 0, settled_fence = 0, hops = 0, revives = 0, fresh = true}
NO_HISTORY.__index = NO_HISTORY -- defaults by metatable: small tables are cheap to create

local function rank(r) return r.due - (r.policy.b or 0) end
local function cost(r) return r.policy.c or 1 end
local function is_suspect(r) return r.crashes + 1 >= (r.policy.m or 3) end
local function queue(r) return (is_suspect(r) and SUSPECT or READY) .. r.source end
local function member(r) return (r.lane or r.policy.x) and r.seq .. 'x' or r.seq end -- x: the claim checks lane or alarm
local function expiry(r) return r.policy.x and not r.started and r.due + r.policy.x or nil end
local function alarm_of(r, place)
  if place == 'waiting' then return r.wait_until end
  return place == 'scheduled' and r.due or expiry(r)
end
local function due_in(after) return after > 0 and math.ceil(now + after) or at end
