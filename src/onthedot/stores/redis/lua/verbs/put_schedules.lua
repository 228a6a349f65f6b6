-- put_schedules: declare schedules (rev 0) or compare and set them.
-- KEYS[1]: prefix. ARGV: now, msgpack [[name, definition_digest, next_at, rev, paused, last_at, runs, incoming], …],
--   then the rule of each.
-- Returns: 1 or 0 for each.
-- uses: schedules notify
local function put_schedule(fields, rule)
  local name, digest, next_at, rev, paused, last_at, runs, incoming = unpack(fields, 1, 8)
  local new = {
    definition_digest = digest, next_at = next_at, rev = rev + 1, paused = paused, last_at = last_at, runs = runs,
    incoming = incoming,
  }
  local old = load_schedule(name)
  if rev > 0 then
    if not old or old.rev ~= rev then return 0 end
    save_schedule(name, new, rule)
  elseif not old then
    save_schedule(name, new, rule)
  elseif digest == '' or digest ~= old.definition_digest then
    old.definition_digest, old.next_at, old.rev = digest, next_at, old.rev + 1
    save_schedule(name, old, rule)
  end
  return 1
end

local answers = {}
for i, fields in ipairs(unpacked(ARGV[2])) do
  answers[i] = put_schedule(fields, ARGV[2 + i])
  recheck = true
end
commit()
return answers
