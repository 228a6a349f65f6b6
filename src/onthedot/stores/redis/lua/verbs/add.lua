-- add: store new tasks, or hand them off to an idle worker.
-- KEYS[1]: prefix. ARGV: now, time at which the caller gives up ("": never), policies (msgpack {digest: text}), groups (msgpack,
--   see insert.lua), all uuids in one, then the body of each task.
-- Returns: nothing if all are new; else for each task "" if it is new, or the uuid of the existing one. The time as a text: it
--   is too late, and nothing was stored.
-- uses: prelude
if ARGV[2] ~= '' and now > tonumber(ARGV[2]) then return string.format('%.17g', now) end
local groups, uuids = unpacked(ARGV[4]), uuids_in(ARGV[5])
local links = groups[1][7]
if #groups == 1 and not groups[1][5] and not groups[1][6] and not (links and links[3]) then
  local group, policy_texts = groups[1], unpacked(ARGV[3])
  local policy = cjson.decode(policy_texts[group[2]])
  if not policy.x and (policy.m or 3) > 1 then
    -- here: insert_plain
  end
end

-- here: unique_keys
local bodies = {}
policy_texts = unpacked(ARGV[3])
check_policies()
for i = 6, #ARGV do bodies[i - 5] = ARGV[i] end
local holders, fresh = add(groups, uuids, bodies)
commit()
return fresh < #uuids and holders
