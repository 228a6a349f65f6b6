-- adopt: store copies of another store's tasks, as lifted. An existing task stays, by uuid or by unique key; but a task that
-- was moved away from here is replaced when it comes back.
-- KEYS[1]: prefix. ARGV: now, policies (msgpack {digest: text}), msgpack [[group of one task (see insert.lua), added, retries,
--   crashes, earlier, started, hops, revives, has an error], …], then uuid, body and error of each.
-- Returns: for each task "" if it is new, else the uuid of the existing one.
-- uses: unique_keys finish
local function adopt(r, body)
  local seq = call('HGET', IDS, r.uuid)
  local existing = seq and load(seq)
  if existing and not (existing.ended and existing.reason == 'lifted' and existing.hops < r.hops) then return r.uuid end
  if r.unique then
    local holder = key_holder(r.source, r.unique)
    if holder and holder ~= r.uuid then return holder end
    hold_key(r.uuid, r.source, r.unique, key_until(r))
  end
  if existing then
    count(existing.source, existing.state, -1)
    forget_task(existing)
    flush()
  end
  r.seq = struct.pack('>I6', number_tasks(r.digest, 1))
  buffer(sets, TASK, r.seq, task_prefix(r) .. r.uuid .. body)
  r.state = 'scheduled'
  end_as_chore(r, 'lifted')
  flush()
  buffer(sets, IDS, r.uuid, r.seq) -- last: without its history it would be a task that may start
  flush() -- the next task may be the same one
end

local holders = {}
policy_texts = unpacked(ARGV[2])
check_policies()
for i, copy in ipairs(unpacked(ARGV[3])) do
  local group, added, retries, crashes, earlier, started, hops, revives, has_error = unpack(copy, 1, 9)
  local r = to_new_record(group)
  r.uuid = ARGV[3 * i + 1]
  r.added, r.retries, r.crashes, r.earlier, r.started, r.hops = added, retries, crashes, earlier, started, hops + 1
  r.revives = revives
  if has_error then r.error = ARGV[3 * i + 3] end
  holders[i] = adopt(r, ARGV[3 * i + 2]) or ''
end
commit()
return holders
