-- Messages to the subscribers of a channel. Where PUBLISH is forbidden, the poll interval is the fallback.
-- uses: prelude
local function publish(channel, message) redis.pcall('PUBLISH', channel, message) end

local function notify_session(session, head, uuids)
  head = pack(head)
  publish(P .. 'to:' .. session, struct.pack('>I2', #head) .. head .. table.concat(uuids))
end
