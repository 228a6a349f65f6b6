-- add: new tasks of any kind (add_alike is for those of one kind).
-- KEYS[1]: prefix. ARGV: now, policies (msgpack {digest: text}), times (msgpack [[at, after], …]), then the uuids in one, head and
--   body each.
-- Returns: for each: "" if it is new, else the uuid of the one that was there.
-- uses: call later policies records counting limits lanes laning entering places steps keys widening adding adding_all logging telling
payload, texts = 3, unpacked(ARGV[2])
local holders = add_all(next_tasks(unpacked(ARGV[3])))
finish()
return holders
