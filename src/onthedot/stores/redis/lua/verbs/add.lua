-- add: new tasks of any kind (add_alike is for those of one kind).
-- KEYS[1]: prefix. ARGV: now, policies (msgpack {digest: text}), times (msgpack [[at, after], …]), then the uuids in one, head and
--   body each.
-- Returns: for each: "" if it is new, else the uuid of the one that was there.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps unique_keys force_hashtable insert insert_payloads change_log notify
payload, texts = 3, unpacked(ARGV[2])
local holders = add_all(next_tasks(unpacked(ARGV[3])))
finish()
return holders
