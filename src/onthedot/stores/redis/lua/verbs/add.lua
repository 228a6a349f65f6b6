-- add: store new tasks, or hand them off to an idle worker.
-- KEYS[1]: prefix. ARGV: now, policies (msgpack {digest: text}), groups (msgpack, see insert.lua), all uuids in one, then the
--   body of each task.
-- Returns: nothing if all are new; else for each task "" if it is new, or the uuid of the existing one.
-- uses: prelude
local groups, uuids = unpacked(ARGV[3]), uuids_in(ARGV[4])
if #groups == 1 and not groups[1][5] and not groups[1][6] then
  local group, policy_texts = groups[1], unpacked(ARGV[2])
  local policy = cjson.decode(policy_texts[group[2]])
  if not policy.x and (policy.m or 3) > 1 then
    -- here: insert_plain
  end
end

-- here: unique_keys
local bodies = {}
policy_texts = unpacked(ARGV[2])
for i = 5, #ARGV do bodies[i - 4] = ARGV[i] end
local holders, fresh = add(groups, uuids, bodies)
commit()
return fresh < #uuids and holders
