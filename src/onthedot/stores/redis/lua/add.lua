-- add: at most a batch of new tasks, none with a unique key: for those there is more to look at (add_unique).
-- KEYS[1]: prefix. ARGV: now, policies (msgpack {digest: text}), times (msgpack {index: [at, after]}, "" if all are due
--   now), then head and body each.
-- Returns: for each: its uuid if it is new ("" then), else the uuid of the one that was there.
-- uses: call later policies records counting entering adding adding_all logging telling
texts = unpacked(ARGV[2])
local times, tasks = ARGV[3] ~= '' and unpacked(ARGV[3]) or {}, {}
for i = 4, #ARGV, 2 do
  local time = times[i / 2 - 1] or {}
  tasks[i / 2 - 1] = {ARGV[i], ARGV[i + 1], time[1], time[2]}
end
local holders = add_all(tasks)
finish()
return holders
