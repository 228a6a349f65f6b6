-- adopt: copies of another store's tasks, lifted. What is there already, by uuid or by unique key, stands.
-- KEYS[1]: prefix. ARGV: now, policies (msgpack {digest: text}), msgpack [[due, added, retries, crashes, earlier, started,
--   has an error], …], then head, body and error each.
-- Returns: for each: "" if it is new, else the uuid of the one that was there.
-- uses: call later policies records counting limits lanes laning entering places steps keys widening adding logging telling
local function adopt(r, head, body)
  if call('HEXISTS', IDS, r.uuid) == 1 then return r.uuid end
  if r.unique then
    local holder = key_holder(r.source, r.unique)
    if holder then return holder end
    hold_key(r.uuid, r.source, r.unique, key_until(r))
  end
  number(r)
  write_asked(r, head, body)
  r.state = 'scheduled'
  to_end(r, 'lifted')
  flush() -- the next may be the same one
end

local holders = {}
texts = unpacked(ARGV[2])
for i, p in ipairs(unpacked(ARGV[3])) do
  local head, body, error = ARGV[1 + 3 * i], ARGV[2 + 3 * i], ARGV[3 + 3 * i]
  local r = to_task(head, p[1])
  r.added, r.retries, r.crashes, r.earlier, r.started, r.error = p[2], p[3], p[4], p[5], p[6], p[7] and error or nil
  holders[i] = adopt(r, head, body) or ''
end
finish()
return holders
