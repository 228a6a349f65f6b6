-- adopt: copies of another store's tasks, lifted. What is there already, by uuid or by unique key, stands; but one
-- that has gone from here gives its place to what comes back.
-- KEYS[1]: prefix. ARGV: now, policies (msgpack {digest: text}), msgpack [[due, added, retries, crashes, earlier, started,
--   hops, has an error], …], then head, uuid, body and error each.
-- Returns: for each: "" if it is new, else the uuid of the one that was there.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps unique_keys finish force_hashtable insert change_log notify
local function adopt(r, head, body)
  local seq = call('HGET', IDS, r.uuid)
  local here = seq and load(seq)
  if here and not (here.ended and here.why == 'lifted' and here.hops < r.hops) then return r.uuid end
  if r.unique then
    local holder = key_holder(r.source, r.unique)
    if holder and holder ~= r.uuid then return holder end
    hold_key(r.uuid, r.source, r.unique, key_until(r))
  end
  if here then
    count(here.source, here.state, -1)
    forget_task(here)
    flush()
  end
  number(r)
  write_asked(r, head, body)
  r.state = 'scheduled'
  end_as_chore(r, 'lifted')
  flush() -- the next may be the same one
end

local holders = {}
texts = unpacked(ARGV[2])
for i, p in ipairs(unpacked(ARGV[3])) do
  local head, uuid, body, error = ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3]
  local r = to_task(uuid, head, p[1])
  r.added, r.retries, r.crashes, r.earlier, r.started = p[2], p[3], p[4], p[5], p[6]
  r.hops, r.error = p[7] + 1, p[8] and error or nil
  holders[i] = adopt(r, head, body) or ''
end
finish()
return holders
