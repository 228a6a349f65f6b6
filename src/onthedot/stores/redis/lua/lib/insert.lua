-- Adding: new records.
local heads = {} -- most of a call have the same: it is taken apart once

local function to_task(uuid, head, moment, after)
  local h = heads[head]
  if not h then
    h = unpacked(head)
    heads[head] = h
  end
  local policy = policy_of(h[1])
  local r = {
    uuid = uuid, source = policy.s, digest = h[1], policy = policy, due = moment or due_in(after or 0), added = at,
  }
  if h[2] then r.lane = h[2] end -- with no room for what most have not, eight fields are enough, and nothing grows
  if h[3] then r.unique = h[3] end
  return setmetatable(r, NO_HISTORY)
end

local function number(r) -- and known by its name from now on
  local next = next_number('seq')
  if next == 1 then force_hashtable() end
  r.seq = struct.pack('>I6', next)
  buffer(sets, IDS, r.uuid, r.seq)
  exists(r, 1, next)
end

local function add(r, head, body, there) -- there: its number, if this uuid is known; answers with whose it is, if not new
  if there then return r.uuid end
  local holder = r.unique and take_key(r, head, body)
  if holder then return holder end
  number(r)
  write_task(r, head, body)
end
